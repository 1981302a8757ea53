//! What this machine has, and how much of it this process may use.

/// Where the kernel shows control groups, and the files of a group's limits: of the unified hierarchy, and of the older
/// kind, where memory has one of its own.
const UNIFIED: (&str, &[&str]) = ("/sys/fs/cgroup", &["memory.max", "memory.high"]);
const OF_MEMORY: (&str, &[&str]) = ("/sys/fs/cgroup/memory", &["memory.limit_in_bytes"]);

/// Bytes of memory and swap, where the system tells.
pub fn memory_and_swap() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(of_meminfo(&text, "MemTotal:")? + of_meminfo(&text, "SwapTotal:").unwrap_or(0))
}

/// Bytes of memory that this process and those it starts may have together: all of the machine's, or what its control
/// group and those above allow. `None` where the system does not tell.
pub fn memory_allowed() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = |file: &str| std::fs::read_to_string(file).ok();
    Some(allowed(of_meminfo(&text, "MemTotal:")?, &groups, limit))
}

fn of_meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The least of `total` and the limits of the group in `groups` (a `/proc/PID/cgroup`) and of all above it; `limit`
/// reads what the file of a limit says.
fn allowed(total: u64, groups: &str, limit: impl Fn(&str) -> Option<String>) -> u64 {
    let mut least = total;
    // A line is a number, the names of controllers (none: the unified hierarchy), and the group's path.
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(names), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, files) = match names {
            "" => UNIFIED,
            _ if names.split(',').any(|name| name == "memory") => OF_MEMORY,
            _ => continue,
        };
        let mut group = group.trim_end_matches('/');
        loop {
            let said = files.iter().filter_map(|file| limit(&format!("{root}{group}/{file}"))?.trim().parse().ok());
            least = said.fold(least, u64::min);
            let Some(slash) = group.rfind('/') else { break };
            group = &group[..slash];
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_a_group_and_those_above_counts() {
        let limits = |file: &str| match file {
            "/sys/fs/cgroup/memory.max" | "/sys/fs/cgroup/memory.high" => None,
            "/sys/fs/cgroup/a/memory.max" => Some("3000\n".to_owned()),
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/b/c/memory.max" => Some("5000\n".to_owned()),
            "/sys/fs/cgroup/h/memory.high" => Some("600\n".to_owned()),
            high if high.ends_with("memory.high") => Some("max\n".to_owned()),
            "/sys/fs/cgroup/h/memory.max" => Some("700\n".to_owned()),
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" => Some("9223372036854771712\n".to_owned()),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes" => Some("4000\n".to_owned()),
            other => panic!("{other}"),
        };
        assert_eq!(allowed(9000, "0::/a/b/c\n", limits), 3000);
        assert_eq!(allowed(2000, "0::/a/b/c\n", limits), 2000);
        assert_eq!(allowed(9000, "0::/\n", limits), 9000);
        assert_eq!(allowed(9000, "", limits), 9000);
        assert_eq!(allowed(9000, "0::/h\n", limits), 600);
        assert_eq!(allowed(9000, "5:cpu:/y\n4:cpuset,memory:/x\n0::/\n", limits), 4000);
        // In a container the root has the container's limit.
        assert_eq!(
            allowed(9000, "0::/\n", |file| (file == "/sys/fs/cgroup/memory.max").then(|| "700".to_owned())),
            700
        );
    }

    #[test]
    fn meminfo_is_in_kib() {
        let text = "MemTotal:       24576000 kB\nMemFree:  1 kB\nSwapTotal: 7 kB\n";
        assert_eq!(of_meminfo(text, "MemTotal:"), Some(24_576_000 * 1024));
        assert_eq!((of_meminfo(text, "SwapTotal:"), of_meminfo(text, "Huge:")), (Some(7 * 1024), None));
        assert!(memory_and_swap().expect("Linux") >= memory_allowed().expect("Linux"));
    }
}
