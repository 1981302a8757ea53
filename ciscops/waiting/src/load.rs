//! What the kernel says about processors and the threads that want them.

/// Threads of the whole machine that run or could: the first number of the fourth field of `/proc/loadavg`.
pub(crate) fn runnable(loadavg: &str) -> Option<u32> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Processors in a list as the kernel writes it: `0-3,8,10-11`.
pub(crate) fn processors(list: &str) -> Option<u32> {
    list.trim().split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read_and_others_are_not() {
        assert_eq!(runnable("4.07 4.61 4.30 5/123 31506\n"), Some(5));
        assert_eq!(processors("0-3,8,10-11\n"), Some(7));
        assert_eq!(processors("0\n"), Some(1));
        for bad in ["", "1 2 3", "1 2 3 x/4 5", "1 2 3 4 5"] {
            assert_eq!(runnable(bad), None, "{bad}");
        }
        for bad in ["", "3-1", "a", "0-4294967295", "1,,2"] {
            assert_eq!(processors(bad), None, "{bad}");
        }
    }

    #[test]
    fn this_machine_says_both() {
        let read = |path| std::fs::read_to_string(path).expect(path);
        assert!(runnable(&read("/proc/loadavg")).expect("a number") >= 1);
        assert!(processors(&read("/sys/devices/system/cpu/online")).expect("a list") >= 1);
    }
}
