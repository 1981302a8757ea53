//! Where a device's cores run: each on processors of its own, if there are as many. The host's scheduler may leave two
//! of them on one processor until its next tick, though another has nothing to do, and who waits for the one waits for
//! the slices of the other.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The calling thread, one of so many cores, keeps to its part of the processors that it may use. Whoever says later
/// where it runs has the last word. Nothing happens where there are fewer processors than cores, or the host refuses.
pub fn keep_to_part(core: usize, cores: usize) {
    let part = sched_getaffinity(None).ok().and_then(|all| part(&all, core, cores));
    if let Some(part) = part {
        let _ = sched_setaffinity(None, &part);
    }
}

/// One of so many parts of a set of processors; none where some part would be empty, or it would be all. Parts lie side
/// by side: neighbours share caches.
pub fn part(all: &CpuSet, number: usize, parts: usize) -> Option<CpuSet> {
    let of: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    if parts < 2 || of.len() < parts {
        return None;
    }
    let bound = |number: usize| (number * of.len()).div_ceil(parts);
    let mut part = CpuSet::new();
    of[bound(number)..bound(number + 1)].iter().for_each(|cpu| part.set(*cpu));
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(of: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        of.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn each_core_has_processors_of_its_own_and_all_are_had() {
        let all = set(&[1, 2, 5, 6, 9]);
        assert_eq!(part(&all, 0, 2), Some(set(&[1, 2, 5])));
        assert_eq!(part(&all, 1, 2), Some(set(&[6, 9])));
        let three: Vec<_> = (0..3).map(|core| part(&all, core, 3)).collect();
        assert_eq!(three, [Some(set(&[1, 2])), Some(set(&[5, 6])), Some(set(&[9]))]);
        assert_eq!(part(&all, 0, 1), None, "one core runs anywhere");
        assert_eq!(part(&all, 5, 6), None, "there are too few");
    }

    #[test]
    fn a_core_that_is_one_of_two_is_kept_to_its_part() {
        let all = sched_getaffinity(None).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                keep_to_part(1, 2);
                assert_eq!(sched_getaffinity(None).unwrap(), part(&all, 1, 2).unwrap_or(all));
            });
        });
    }
}
