//! Free host memory: on this machine, and in the control groups of this process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the host memory that this process can still take, in bytes.
///
/// # Errors
///
/// When the system does not report its free memory.
pub(crate) fn free() -> io::Result<u64> {
    free_below(Path::new("/"))
}

fn free_below(root: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0);
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let in_groups = groups.lines().filter_map(|line| in_group(root, line)).min();
    Ok((kib << 10).min(in_groups.unwrap_or(u64::MAX)))
}

/// The files of a version of control groups (cgroups(7), `memory.txt` and `cgroup-v2.rst` in the kernel's documentation).
struct Version {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: file pages that the kernel reclaims before any process runs short.
    cache: &'static str,
}

const FIRST: Version =
    Version { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", cache: "total_inactive_file " };
const SECOND: Version = Version { limit: "memory.max", used: "memory.current", cache: "inactive_file " };

/// Returns the memory that a group named by a line of `/proc/self/cgroup`, and the groups above it, can still take; none without a
/// limit.
fn in_group(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (mount, version) = match (number, controllers) {
        ("0", "") => ("sys/fs/cgroup", SECOND),
        (_, names) if names.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", FIRST),
        _ => return None,
    };
    let mount = root.join(mount);
    let group: PathBuf = mount.join(path.trim_start_matches('/'));
    // In a container the path may not be visible; then the container's own group is read.
    group.ancestors().take_while(|folder| folder.starts_with(&mount)).filter_map(|folder| version.left(folder)).min()
}

impl Version {
    fn left(&self, folder: &Path) -> Option<u64> {
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cache = stat.lines().find_map(|line| line.strip_prefix(self.cache)?.trim().parse::<u64>().ok());
        let used = number(self.used).unwrap_or(0).saturating_sub(cache.unwrap_or(0));
        Some(limit.saturating_sub(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A system with 8 GiB free and these files.
    fn system(files: &[(&str, String)]) -> u64 {
        let root = tempfile::tempdir().expect("a temporary folder");
        let meminfo = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    8388608 kB\n".to_owned());
        for (file, text) in files.iter().chain([&meminfo]) {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a writable folder");
            fs::write(path, text).expect("a writable folder");
        }
        free_below(root.path()).expect("it is said")
    }

    fn bytes(mib: u64) -> String {
        format!("{}\n", mib * MIB)
    }

    #[test]
    fn without_limits_all_that_is_free_counts() {
        assert_eq!(system(&[]), 8192 * MIB);
        let max = ("sys/fs/cgroup/a/memory.max", "max\n".to_owned());
        assert_eq!(system(&[("proc/self/cgroup", "0::/a\n".to_owned()), max]), 8192 * MIB);
    }

    #[test]
    fn a_service_has_the_least_that_it_and_those_around_it_may_take() {
        let own = ("proc/self/cgroup", "0::/system.slice/baton.service\n".to_owned());
        let files = [
            own,
            ("sys/fs/cgroup/system.slice/memory.max", bytes(1000)),
            ("sys/fs/cgroup/system.slice/memory.current", bytes(300)),
            ("sys/fs/cgroup/system.slice/baton.service/memory.max", bytes(800)),
            ("sys/fs/cgroup/system.slice/baton.service/memory.current", bytes(250)),
            // File cache makes way.
            ("sys/fs/cgroup/system.slice/baton.service/memory.stat", format!("anon 1\ninactive_file {}", bytes(200))),
        ];
        assert_eq!(system(&files), 700 * MIB);
        assert_eq!(system(&[files[0].clone(), files[3].clone(), files[4].clone(), files[5].clone()]), 750 * MIB);
    }

    #[test]
    fn groups_of_the_first_version_and_containers_have_limits_too() {
        let lines = "5:devices:/\n4:cpu,memory:/box/inner\n0::/\n".to_owned();
        let files = [
            ("proc/self/cgroup", lines),
            ("sys/fs/cgroup/memory/box/inner/memory.limit_in_bytes", bytes(600)),
            ("sys/fs/cgroup/memory/box/inner/memory.usage_in_bytes", bytes(100)),
        ];
        assert_eq!(system(&files), 500 * MIB);
        let hidden = [
            ("proc/self/cgroup", "0::/../somebody/elses\n".to_owned()),
            ("sys/fs/cgroup/memory.max", bytes(64)),
            ("sys/fs/cgroup/memory.current", bytes(70)),
        ];
        assert_eq!(system(&hidden), 0);
    }
}
