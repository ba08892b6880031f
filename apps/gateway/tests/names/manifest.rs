//! The manifest of the documents, and the program's man page.

use std::fs;
use std::process::Command;

use yaml_rust2::YamlLoader;

use crate::common::{gateway_program, unavailable};
use crate::{Folder, succeeds};

#[test]
fn the_pods_manifest_is_one_and_the_gateway_takes_its_arguments() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/jobs/gateway-pod.yaml");
    let documents = YamlLoader::load_from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let [pod, policy] = &documents[..] else { panic!("{} documents", documents.len()) };
    assert_eq!((pod["kind"].as_str(), policy["kind"].as_str()), (Some("Pod"), Some("NetworkPolicy")));
    assert_eq!(pod["metadata"]["labels"]["app"], policy["spec"]["podSelector"]["matchLabels"]["app"]);
    let container = &pod["spec"]["containers"][0];
    let words: Vec<&str> =
        container["args"].as_vec().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let at = words.iter().position(|word| *word == "--").unwrap();
    assert_eq!(words[at + 1..], ["/program"]);
    assert!(
        words.iter().any(|word| *word
            == format!("--publish={}:80", container["ports"][0]["containerPort"].as_i64().unwrap()))
    );
    let (mount, volume) = (&container["volumeMounts"][0], &pod["spec"]["volumes"][0]);
    assert_eq!((&mount["name"], &mount["mountPath"]), (&volume["name"], &volume["hostPath"]["path"]));
    if unavailable() {
        return;
    }
    // The published port is whichever is free here.
    let words = words[..at].iter().filter(|word| !word.starts_with("--publish"));
    succeeds(Command::new(gateway_program()).args(words).args(["--", "true"]));
}

#[test]
fn the_man_page_has_every_option() {
    let folder = Folder::new("man");
    succeeds(Command::new(gateway_program()).arg("--man").arg(&folder.0));
    let page = fs::read_to_string(folder.0.join("sockeye-gateway.1")).unwrap();
    for option in ["\\-\\-tap", "\\-\\-qemu", "\\-\\-network", "\\-\\-publish", ".SH EXAMPLES"] {
        assert!(page.contains(option), "{option}");
    }
    assert!(!page.contains("behind"), "hidden options are hidden");
}
