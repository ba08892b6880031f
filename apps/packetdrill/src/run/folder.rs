//! The runner's copy of a collection, with stand-ins for what would change this host.
//!
//! Scripts run `sysctl`, `ip`, `tc` and others by name, which are found first in a folder of ours (`stubs/tool`), and `set_sysctls.py` by its path in
//! the collection, which is replaced in the copy. Tests: below.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Programs that scripts run and that must change nothing here.
const TOOLS: [&str; 5] = ["sysctl", "ip", "tc", "ethtool", "ifconfig"];
const TOOL: &str = include_str!("../../stubs/tool");
const NSTAT: &str = include_str!("../../stubs/nstat");
const SET_SYSCTLS: &str = include_str!("../../stubs/set_sysctls.py");
/// Names of folders that are tried: an earlier run may have left some.
const NAMES_TRIED: u32 = 100;
/// Files that are copied, at most: scripts and what they run are small.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Makes a new folder for this user alone. Another user who made it first could replace the programs that run from it.
fn own_folder() -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let place = std::env::temp_dir().join(format!("sockeye-packetdrill-{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES_TRIED => number += 1,
            made => return made.map(|()| place),
        }
    }
}

/// A copy, which goes when it is dropped.
pub(crate) struct Folder {
    place: PathBuf,
}

impl Folder {
    /// Copies `from`; with the stand-ins, unless the scripts are to change the kernel's settings.
    pub fn copy_of(from: &Path, with_stubs: bool) -> io::Result<Self> {
        let folder = Self { place: own_folder()? };
        fs::create_dir_all(folder.tools())?;
        fs::create_dir_all(folder.logs())?;
        copy(from, &folder.scripts_root(), with_stubs)?;
        if with_stubs {
            for tool in TOOLS {
                program(&folder.tools().join(tool), TOOL)?;
            }
            program(&folder.tools().join("nstat"), NSTAT)?;
        }
        Ok(folder)
    }

    /// Where the collection's paths begin.
    pub fn scripts_root(&self) -> PathBuf {
        self.place.join("scripts")
    }

    /// First on the scripts' path.
    pub fn tools(&self) -> PathBuf {
        self.place.join("tools")
    }

    /// For a file of each run.
    pub fn logs(&self) -> PathBuf {
        self.place.join("logs")
    }

    /// The scripts at or under these paths, which are relative to the collection; of all of it, if there are none.
    pub fn scripts(&self, only: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
        let root = self.scripts_root();
        let mut found = Vec::new();
        if only.is_empty() {
            find(&root, &root, &mut found)?;
        }
        for path in only {
            find(&root, &root.join(path), &mut found)?;
        }
        found.sort();
        found.dedup();
        Ok(found)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.place);
    }
}

fn copy(from: &Path, to: &Path, with_stubs: bool) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let data = fs::metadata(&path)?;
        if data.is_dir() {
            if entry.file_name() != ".git" {
                copy(&path, &target, with_stubs)?;
            }
        } else if with_stubs && entry.file_name() == "set_sysctls.py" {
            program(&target, SET_SYSCTLS)?;
        } else if data.is_file() && data.len() <= FILE_LEN_MAX {
            let _ = fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

fn program(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn find(root: &Path, path: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            find(root, &entry?.path(), found)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "pkt")
        && let Ok(name) = path.strip_prefix(root)
    {
        found.push(name.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_scripts_and_the_stand_ins_and_goes_with_its_owner() {
        let from = std::env::temp_dir().join(format!("sockeye-collection-{}", std::process::id()));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/x.pkt"), "0 ...").unwrap();
        fs::write(from.join("a/y.pkt"), "0 ...").unwrap();
        fs::write(from.join("a/set_sysctls.py"), "changes the host").unwrap();
        let folder = Folder::copy_of(&from, true).unwrap();
        assert_eq!(folder.scripts(&[]).unwrap(), [PathBuf::from("a/b/x.pkt"), "a/y.pkt".into()]);
        assert_eq!(folder.scripts(&["a/b".into()]).unwrap().len(), 1);
        assert!(folder.scripts(&["c".into()]).is_err());
        let replaced = fs::read_to_string(folder.scripts_root().join("a/set_sysctls.py")).unwrap();
        assert_eq!(replaced, SET_SYSCTLS);
        let mode = fs::metadata(folder.tools().join("sysctl")).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111);
        let place = folder.place.clone();
        drop(folder);
        assert!(!place.exists());
        fs::remove_dir_all(from).unwrap();
    }
}
