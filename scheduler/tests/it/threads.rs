//! A policy under a lock, as the device's cores share it: pickers, clients and a thread that replaces the policy, in
//! every interleaving that a bounded random search finds. Nothing is lost, nothing runs twice, nothing is left over.

use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;
use weldfs_scheduler::{Cost, Entry, Policy, PolicyKind, TenantId, Token, switch};

const TOKENS: u32 = 8;
const ROUNDS: usize = 3;
const PICKERS: usize = 2;

struct Shared {
    policy: Mutex<Box<dyn Policy>>,
    runnable: Condvar,
    /// Whether a token is being run: two at once would be a command that runs twice.
    running: Vec<AtomicBool>,
    /// How often each token ran or was withdrawn.
    ended: Vec<AtomicUsize>,
    left: AtomicUsize,
}

fn entry(token: u32) -> Entry {
    Entry { tenant: TenantId(token % 3), inode: u64::from(token % 5), token: Token(token), request_ns: 10_000 }
}

impl Shared {
    fn new(kind: PolicyKind) -> Shared {
        Shared {
            policy: Mutex::new(kind.build(TOKENS as usize)),
            runnable: Condvar::new(),
            running: (0..TOKENS).map(|_| AtomicBool::new(false)).collect(),
            ended: (0..TOKENS).map(|_| AtomicUsize::new(0)).collect(),
            left: AtomicUsize::new(TOKENS as usize * ROUNDS),
        }
    }

    fn wake(&self, token: u32) {
        self.policy.lock().expect("no picker panics").enqueue(entry(token));
        self.runnable.notify_one();
    }

    /// One turn of a command is over; the last one lets all pickers go.
    fn end(&self, token: Token) -> bool {
        let again = self.ended[token.0 as usize].fetch_add(1, Ordering::SeqCst) + 1 < ROUNDS;
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Under the lock: a picker that has just looked must not miss it.
            let _guard = self.policy.lock().expect("no picker panics");
            self.runnable.notify_all();
        }
        again
    }

    fn core(&self) {
        let mut ran: Option<Entry> = None;
        loop {
            let mut policy = self.policy.lock().expect("no picker panics");
            if let Some(e) = ran.take() {
                policy.account(e.tenant, e.inode, Cost { time_ns: 10_000, ..Cost::default() });
            }
            let e = loop {
                if self.left.load(Ordering::SeqCst) == 0 {
                    return;
                }
                match policy.pick() {
                    Some(e) => break e,
                    None => policy = self.runnable.wait(policy).expect("no picker panics"),
                }
            };
            drop(policy);
            assert_eq!(e, entry(e.token.0), "an entry comes back as it went in");
            let mine = &self.running[e.token.0 as usize];
            assert!(!mine.swap(true, Ordering::SeqCst), "a command runs on two cores");
            thread::yield_now();
            assert!(mine.swap(false, Ordering::SeqCst));
            ran = Some(e);
            if self.end(e.token) {
                self.wake(e.token.0);
            }
        }
    }
}

fn scenario(first: PolicyKind, then: [PolicyKind; 2]) {
    let shared = Arc::new(Shared::new(first));
    let mut threads = Vec::new();
    for _ in 0..PICKERS {
        let shared = shared.clone();
        threads.push(thread::spawn(move || shared.core()));
    }
    for half in 0..2 {
        let shared = shared.clone();
        threads.push(thread::spawn(move || (0..TOKENS).filter(|t| t % 2 == half).for_each(|t| shared.wake(t))));
    }
    let other = shared.clone();
    threads.push(thread::spawn(move || {
        for kind in then {
            let mut policy = other.policy.lock().expect("no picker panics");
            *policy = switch(&mut **policy, kind, TOKENS as usize);
            policy.boost(Token(3), TenantId(1));
            policy.set_pressure(TenantId(2), 512);
        }
        // A client that goes away takes one command back, wherever it is then.
        let withdrawn = other.policy.lock().expect("no picker panics").remove(Token(5));
        if let Some(e) = withdrawn
            && other.end(e.token)
        {
            other.wake(e.token.0);
        }
    }));
    threads.into_iter().for_each(|t| t.join().expect("no thread panics"));
    assert!(shared.ended.iter().all(|n| n.load(Ordering::SeqCst) == ROUNDS));
    assert!(shared.policy.lock().expect("no picker panics").is_empty(), "nothing is left over");
}

#[test]
fn no_command_is_lost_or_run_twice_by_cores_clients_and_a_switch_at_any_moment() {
    for (first, then) in [
        (PolicyKind::Cfs, [PolicyKind::Eevdf, PolicyKind::Rr]),
        (PolicyKind::Eevdf, [PolicyKind::Cfs, PolicyKind::Fifo]),
        (PolicyKind::Fifo, [PolicyKind::Rr, PolicyKind::Eevdf]),
    ] {
        shuttle::check_random(move || scenario(first, then), 300);
    }
}

#[test]
fn the_same_under_schedules_that_preempt_at_few_chosen_places() {
    shuttle::check_pct(|| scenario(PolicyKind::Cfs, [PolicyKind::Eevdf, PolicyKind::Cfs]), 300, 3);
}
