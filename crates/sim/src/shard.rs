//! A part of the seeds for each of several machines, and the file of results.
//!
//! The parts are taken in turns (the first of three has the seeds 0, 3, 6, ...), so that they take about the same time. Tests: below, `tests/seeds.rs`.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::processes::Call;

/// Which part of the seeds is run here: `I/N`, counted from 0.
pub const SHARD_VARIABLE: &str = "SOCKEYE_SIM_SHARD";
/// The number of parts, where a job's own variable has the index.
pub const SHARDS_VARIABLE: &str = "SOCKEYE_SIM_SHARDS";
/// A file, or a folder for a file for each call of a test and part, to which results are appended as lines of JSON.
pub const RESULTS_VARIABLE: &str = "SOCKEYE_SIM_RESULTS";

/// One of several parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shard {
    pub index: u64,
    pub count: u64,
}

impl Shard {
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// The part that the environment asks for:
    /// * `SOCKEYE_SIM_SHARD=I/N`,
    /// * of an indexed Job of Kubernetes, which does not tell its pods how many they are, `SOCKEYE_SIM_SHARDS=N` and `JOB_COMPLETION_INDEX`,
    /// * of an array of Slurm its own variables.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str| match variable(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<u64>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("{name} is {text:?}: it must be a number")),
            },
        };
        if let Some(text) = variable(SHARD_VARIABLE) {
            let parts = text.split_once('/');
            let parts = parts.and_then(|(i, n)| Some((i.trim().parse().ok()?, n.trim().parse().ok()?)));
            let wrong = format!("{SHARD_VARIABLE} is {text:?}: it must be I/N with I from 0 to N - 1");
            return parts.and_then(|(index, count)| Self::new(index, count)).ok_or(wrong);
        }
        let count = number(SHARDS_VARIABLE)?;
        if let (Some(count), Some(index)) = (count, number("JOB_COMPLETION_INDEX")?) {
            let wrong = format!("JOB_COMPLETION_INDEX is {index}, and {SHARDS_VARIABLE} is {count}");
            return Self::new(index, count).ok_or(wrong);
        }
        if let (Some(id), Some(tasks)) = (number("SLURM_ARRAY_TASK_ID")?, number("SLURM_ARRAY_TASK_COUNT")?) {
            let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
            let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
            let index = id.saturating_sub(first) / step;
            let wrong =
                format!("SLURM_ARRAY_TASK_ID is {id}, and the array has {tasks} tasks from {first} on");
            return Self::new(index, count.unwrap_or(tasks)).ok_or(wrong);
        }
        match count {
            Some(count) if count > 1 => {
                Err(format!("{SHARDS_VARIABLE} is {count}, and nothing says which of them this is"))
            }
            _ => Ok(Self::WHOLE),
        }
    }

    fn new(index: u64, count: u64) -> Option<Self> {
        (index < count).then_some(Self { index, count })
    }

    /// Whether the `place`-th seed is in this part.
    pub fn has(&self, place: u64) -> bool {
        place % self.count == self.index
    }
}

/// The outcome of a seed.
pub(crate) struct SeedResult<'a> {
    /// The program with the test: see [`binary`].
    pub binary: &'a str,
    pub call: &'a Call,
    pub seed: u64,
    /// What the failure says.
    pub failure: Option<&'a str>,
    pub simulated_nanos: u64,
    pub events: u64,
    pub digest: u64,
}

impl SeedResult<'_> {
    /// As a line of JSON. The digest is text: it does not fit into what many readers have for a number.
    fn line(&self) -> String {
        let Self { binary, call: Call { test, number }, seed, failure, simulated_nanos, events, digest } =
            self;
        let (binary, test) = (json(binary), json(test));
        let mut line = format!("{{\"binary\":{binary},\"test\":{test},\"call\":{number},\"seed\":{seed}");
        match failure {
            None => line.push_str(",\"outcome\":\"passed\""),
            Some(message) => {
                let _infallible = write!(line, ",\"outcome\":\"failed\",\"message\":{}", json(message));
            }
        }
        let _infallible = writeln!(
            line,
            ",\"simulated_ns\":{simulated_nanos},\"events\":{events},\"digest\":\"{digest:016x}\"}}"
        );
        line
    }
}

/// The name of this program, which with tests is that of a file in `tests/` or of the library, and of its package, if Cargo has started it. Programs have tests of equal names.
pub(crate) fn binary() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let stem = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let package = std::env::var("CARGO_PKG_NAME").ok();
    named(package.as_deref(), &stem)
}

/// Without the hash that Cargo appends.
fn named(package: Option<&str>, stem: &str) -> String {
    let is_hash = |end: &str| end.len() == 16 && end.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = stem.rsplit_once('-').map_or(stem, |(name, end)| if is_hash(end) { name } else { stem });
    package.map_or_else(|| name.to_owned(), |package| format!("{package}/{name}"))
}

/// The file of results that the environment names, for a part of a call. What ends with a slash is a folder, and is made.
///
/// # Errors
/// If the file cannot be written to, with its path.
pub(crate) fn results_file(given: &Path, binary: &str, call: &Call, shard: Shard) -> io::Result<PathBuf> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{RESULTS_VARIABLE}: {}: {error}", path.display()))
    };
    if given.as_os_str().as_encoded_bytes().ends_with(b"/") {
        std::fs::create_dir_all(given).map_err(|error| named(given, error))?;
    }
    let path = if given.is_dir() {
        let test = format!("{}.{}", binary.replace('/', "."), call.test.replace("::", "."));
        given.join(format!("{test}.{}.{}-of-{}.jsonl", call.number, shard.index, shard.count))
    } else {
        given.to_owned()
    };
    opened(&path).map_err(|error| named(&path, error))?;
    Ok(path)
}

fn opened(path: &Path) -> io::Result<std::fs::File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Appends a line in one write: lines of several threads and processes do not mix.
pub(crate) fn append(path: &Path, result: &SeedResult<'_>) -> io::Result<()> {
    opened(path)?.write_all(result.line().as_bytes())
}

fn json(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            char if char < ' ' => {
                let _infallible = write!(quoted, "\\u{:04x}", u32::from(char));
            }
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(variables: &[(&str, &str)]) -> Result<Shard, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Shard::of_environment(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_part_is_named_by_the_environment_or_by_the_job_that_runs_it() {
        let part = |index, count| Ok(Shard { index, count });
        assert_eq!(shard(&[]), part(0, 1));
        assert_eq!(shard(&[("SOCKEYE_SIM_SHARD", "2/3")]), part(2, 3));
        assert_eq!(shard(&[("SOCKEYE_SIM_SHARDS", "5"), ("JOB_COMPLETION_INDEX", "4")]), part(4, 5));
        // A job that knows nothing of parts runs all seeds.
        assert_eq!(shard(&[("JOB_COMPLETION_INDEX", "4")]), part(0, 1));
        let slurm = [
            ("SLURM_ARRAY_TASK_ID", "14"),
            ("SLURM_ARRAY_TASK_COUNT", "3"),
            ("SLURM_ARRAY_TASK_MIN", "10"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
        ];
        assert_eq!(shard(&slurm), part(2, 3));
        let own =
            [("SOCKEYE_SIM_SHARD", "0/2"), ("SLURM_ARRAY_TASK_ID", "1"), ("SLURM_ARRAY_TASK_COUNT", "9")];
        assert_eq!(shard(&own), part(0, 2));
    }

    /// The part that a job's environment names.
    fn part(variables: &[(String, String)]) -> Shard {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        Shard::of_environment(variable).unwrap()
    }

    #[test]
    fn the_manifest_for_kubernetes_runs_each_part_once() {
        let text = include_str!("../docs/jobs/sim-kubernetes.yaml");
        let documents = yaml_rust2::YamlLoader::load_from_str(text).unwrap();
        let job = &documents[0];
        assert_eq!((documents.len(), job["kind"].as_str()), (1, Some("Job")));
        let spec = &job["spec"];
        assert_eq!(spec["completionMode"].as_str(), Some("Indexed"));
        let container = &spec["template"]["spec"]["containers"][0];
        let text_of = |entry: &yaml_rust2::Yaml, key: &str| entry[key].as_str().unwrap().to_owned();
        let given: Vec<(String, String)> = container["env"]
            .as_vec()
            .unwrap()
            .iter()
            .map(|one| (text_of(one, "name"), text_of(one, "value")))
            .collect();
        let names: Vec<&str> = given.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [SHARDS_VARIABLE, RESULTS_VARIABLE]);
        let mount = &container["volumeMounts"][0];
        assert_eq!(mount["mountPath"].as_str(), Some(given[1].1.as_str()));
        assert_eq!(mount["name"], spec["template"]["spec"]["volumes"][0]["name"]);
        let completions = u64::try_from(spec["completions"].as_i64().unwrap()).unwrap();
        let index = |index: u64| [("JOB_COMPLETION_INDEX".to_owned(), index.to_string())];
        let parts: Vec<Shard> =
            (0..completions).map(|one| part(&[&given[..], &index(one)].concat())).collect();
        let expected: Vec<Shard> =
            (0..completions).map(|index| Shard { index, count: completions }).collect();
        assert_eq!(parts, expected);
    }

    #[test]
    fn the_script_for_slurm_is_one_of_the_shell_and_names_variables_of_ours() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/jobs/sim-slurm.sh");
        if cfg!(unix) {
            assert!(std::process::Command::new("sh").args(["-n", path]).status().unwrap().success());
        }
        let text = std::fs::read_to_string(path).unwrap();
        let (_, range) = text.split_once("#SBATCH --array=0-").unwrap();
        assert_eq!(range.lines().next(), Some("7"));
        let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let ours: Vec<&str> =
            text.split(|char| !is_name(char)).filter(|word| word.starts_with("SOCKEYE")).collect();
        assert_eq!(ours, [RESULTS_VARIABLE]);
    }

    #[test]
    fn a_folder_of_results_is_made_and_what_cannot_be_written_is_named() {
        let folder = std::env::temp_dir().join(format!("sockeye-sim-results-{}", std::process::id()));
        let given = PathBuf::from(format!("{}/", folder.display()));
        let part = Shard { index: 1, count: 4 };
        let file = folder.join("p.net.m.t.2.1-of-4.jsonl");
        let call = Call { test: "m::t".to_owned(), number: 2 };
        let results_file = |given: &Path| results_file(given, "p/net", &call, part);
        assert_eq!(results_file(&given).unwrap(), file);
        assert_eq!(results_file(&folder).unwrap(), file);
        assert_eq!(results_file(&file).unwrap(), file);
        let below = file.join("x");
        let error = results_file(&below).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{RESULTS_VARIABLE}: {}: ", below.display())), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_part_that_is_none_is_an_error() {
        for text in ["3/3", "1", "a/b", "0/0", "-1/2"] {
            assert!(shard(&[("SOCKEYE_SIM_SHARD", text)]).is_err(), "{text}");
        }
        assert!(shard(&[("SOCKEYE_SIM_SHARDS", "4")]).is_err());
        assert!(shard(&[("SOCKEYE_SIM_SHARDS", "4"), ("JOB_COMPLETION_INDEX", "4")]).is_err());
        assert!(shard(&[("SLURM_ARRAY_TASK_ID", "x"), ("SLURM_ARRAY_TASK_COUNT", "1")]).is_err());
    }

    #[test]
    fn each_place_is_in_one_part() {
        let parts = [0, 1, 2].map(|index| Shard { index, count: 3 });
        assert!((0..30).all(|place| parts.iter().filter(|part| part.has(place)).count() == 1));
    }

    #[test]
    fn a_program_is_named_without_the_hash_of_its_build() {
        assert_eq!(named(Some("p"), "net-0123456789abcdef"), "p/net");
        assert_eq!(named(None, "net-0123456789abcdef"), "net");
        assert_eq!(named(None, "my-net"), "my-net");
        assert_eq!(named(None, "net"), "net");
    }

    #[test]
    fn a_result_is_one_line_of_json() {
        let call = Call { test: "a::b".to_owned(), number: 1 };
        let mut result = SeedResult {
            binary: "p/net",
            call: &call,
            seed: 7,
            failure: None,
            simulated_nanos: 5,
            events: 2,
            digest: 0xab,
        };
        let passed = "{\"binary\":\"p/net\",\"test\":\"a::b\",\"call\":1,\"seed\":7,\"outcome\":\"passed\",\"simulated_ns\":5,\"events\":2,\"digest\":\"00000000000000ab\"}\n";
        assert_eq!(result.line(), passed);
        result.failure = Some("left \"1\"\n\tright \\");
        assert!(
            result.line().contains(r#""failed","message":"left \"1\"\n\u0009right \\","#),
            "{}",
            result.line()
        );
    }
}
