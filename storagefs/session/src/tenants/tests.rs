use super::*;
use weldfs_journal::SystemRandom;

pub const HAS: DeviceStock = DeviceStock {
    cores: 1,
    slots: 256,
    sessions: 1024,
    queue_pairs: 4096,
    pool_bytes: 1 << 30,
    handles: 1 << 20,
    placeholders: 10_000,
};

fn table(text: &str) -> TenantTable {
    TenantTable::new(TenantsConfig::parse(text).unwrap(), HAS, &SystemRandom)
}

fn peer(uid: u32, gid: u32, groups: &[u32], cgroup: Option<&str>) -> Identity {
    let cred = Cred { uid, gid, groups: groups.into() };
    Identity { cgroup: cgroup.map(str::to_owned), ..Identity::from(cred) }
}

const FOUR: &str = r#"
[[tenant]]
name = "by-gid"
gids = [10, 11]
[[tenant]]
name = "by-uid"
uids = [1000]
weight = 400
[[tenant]]
name = "by-cgroup"
cgroups = ["/a", "/b/c"]
[[tenant]]
name = "inner"
cgroups = ["/a/in"]
token = true
"#;

#[test]
fn the_order_of_rules_is_token_cgroup_uid_gid_and_then_a_tenant_per_uid() {
    let t = table(FOUR);
    let name = |who: Identity| t.of(&who).name.clone();
    assert_eq!(name(peer(7, 7, &[], None)), "uid:7");
    assert_eq!(name(peer(7, 10, &[], None)), "by-gid");
    assert_eq!(name(peer(7, 7, &[3, 11], None)), "by-gid");
    assert_eq!(name(peer(1000, 10, &[], Some("/c"))), "by-uid");
    assert_eq!(name(peer(1000, 10, &[], Some("/a/x"))), "by-cgroup");
    assert_eq!(name(peer(1000, 10, &[], Some("/a/in/y"))), "inner");
    assert_eq!(name(peer(1000, 10, &[], Some("/ab"))), "by-uid");
    let joined = t.bearer(&t.token("inner").unwrap());
    assert_eq!(name(Identity { joined, ..peer(1000, 10, &[], Some("/b/c")) }), "inner");
}

#[test]
fn numbers_are_dense_and_a_uid_keeps_its_tenant() {
    let t = table(FOUR);
    let (a, b) = (t.of(&peer(7, 7, &[], None)), t.of(&peer(8, 7, &[], None)));
    assert_eq!((a.id, b.id), (TenantId(4), TenantId(5)));
    assert!(Arc::ptr_eq(&a, &t.of(&peer(7, 9, &[], None))));
    assert_eq!(t.list().iter().map(|t| t.id.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!((t.named("by-uid").unwrap().weight(), a.weight()), (400, WEIGHT_DEFAULT));
}

#[test]
fn more_uids_than_the_table_holds_share_one_tenant() {
    let t = table("");
    // Each of them has a session.
    let there: Vec<_> = (0..2 * TENANTS_MAX as u32).map(|uid| t.of(&peer(uid, 0, &[], None))).collect();
    assert_eq!(t.list().len(), TENANTS_MAX);
    assert_eq!(there.last().unwrap().name, file::OTHERS);
    assert_eq!(t.of(&peer(u32::MAX, 0, &[], None)).name, file::OTHERS);
    assert_eq!(t.of(&peer(5, 0, &[], None)).name, "uid:5");
}

#[test]
fn uids_without_a_session_give_their_places_to_those_that_come_and_nothing_that_was_used_is_forgotten() {
    let t = table(FOUR);
    let there = t.of(&peer(1, 0, &[], None));
    let busy = t.of(&peer(2, 0, &[], None));
    assert!(busy.take(Resource::Handles, 1));
    drop(busy);
    let used = Totals { commands: 1, ..Totals::default() };
    for uid in 3000..3000 + 5 * TENANTS_MAX as u32 {
        let tenant = t.of(&peer(uid, 0, &[], None));
        assert_eq!(tenant.name, format!("uid:{uid}"), "there is a place for everybody who comes");
        assert_eq!(t.list()[tenant.id.0 as usize].name, tenant.name);
        tenant.retire(&used);
    }
    let all = t.list();
    assert_eq!(all.len(), TENANTS_MAX);
    assert!(all.iter().enumerate().all(|(at, t)| t.id.0 as usize == at));
    let names = |name: &str| all.iter().filter(|t| t.name == name).count();
    let kept = ["by-gid", "by-uid", "by-cgroup", "inner", "uid:1", "uid:2", file::OTHERS];
    assert_eq!(kept.map(names), [1; 7]);
    assert!(Arc::ptr_eq(&t.of(&peer(1, 0, &[], None)), &there));
    let commands: u64 = all.iter().map(|t| t.retired().commands).sum();
    assert_eq!(commands, 5 * TENANTS_MAX as u64);
}

#[test]
fn only_a_minted_token_makes_a_member() {
    let t = table(FOUR);
    let token = t.token("inner").unwrap();
    assert_eq!(t.bearer(&token).unwrap().name, "inner");
    for bit in 0..128 {
        let mut wrong = token;
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(t.bearer(&wrong).is_none());
    }
    assert_eq!(t.token("by-uid"), Err(Errno::OPNOTSUPP));
    assert_eq!(t.token("nobody"), Err(Errno::NOENT));
    assert_ne!(table(FOUR).token("inner").unwrap(), token, "another run, another token");
}

#[test]
fn greedy_tenants_end_up_with_equal_parts_and_leave_something() {
    let t = table("");
    let greedy: Vec<_> = (0..8).map(|uid| (t.of(&peer(uid, 0, &[], None)), Load::default())).collect();
    let mut seed = 1u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (ends, session) = &greedy[(seed >> 33) as usize % 8];
        if ends.usage().in_flight > 0 {
            ends.done(session, 4096);
        }
        greedy.iter().for_each(|(g, session)| while g.try_admit(session, 4096) {});
    }
    let parts: Vec<_> = greedy.iter().map(|(g, _)| g.usage().in_flight).collect();
    assert!(parts.iter().all(|n| (27..=33).contains(n)), "{parts:?}");
    assert!(t.of(&peer(9, 0, &[], None)).try_admit(&Load::default(), 0), "nothing is left: {parts:?}");
}

#[test]
fn a_greedy_session_leaves_room_to_its_tenant_and_the_tenant_to_others() {
    let t = table("");
    let one = t.of(&peer(1, 0, &[], None));
    let (flood, modest) = (Load::default(), Load::default());
    let flooded = std::iter::repeat_with(|| one.try_admit(&flood, 0)).take_while(|yes| *yes).count();
    assert!((100..=144).contains(&flooded), "{flooded}");
    let beside = std::iter::repeat_with(|| one.try_admit(&modest, 0)).take_while(|yes| *yes).count();
    assert!(beside >= 32 && flooded + beside <= 192, "{flooded} and {beside}");
    assert!(t.of(&peer(2, 0, &[], None)).try_admit(&Load::default(), 0));
    let bytes = table("[default.limits]\nbytes_in_flight = 8388608\n").of(&peer(1, 0, &[], None));
    let (flood, modest) = (Load::default(), Load::default());
    let flooded = (0..9).filter(|_| bytes.try_admit(&flood, 1 << 20)).count();
    let beside = (0..9).filter(|_| bytes.try_admit(&modest, 1 << 20)).count();
    assert!(flooded == 6 && beside == 2, "{flooded} and {beside}");
}

#[test]
fn admission_is_bounded_by_commands_and_bytes_and_comes_back() {
    let t = table("[default.limits]\nin_flight = 10\nbytes_in_flight = 4194304\n");
    let one = t.of(&peer(1, 0, &[], None));
    let sessions: Vec<Load> = (0..50).map(|_| Load::default()).collect();
    assert_eq!(sessions.iter().filter(|s| one.try_admit(s, 0)).count(), 10);
    sessions.iter().take(10).for_each(|s| one.done(s, 0));
    assert_eq!(sessions.iter().filter(|s| one.try_admit(s, 1 << 20)).count(), 4);
    sessions.iter().take(4).for_each(|s| one.done(s, 1 << 20));
    assert!(one.try_admit(&sessions[0], 1 << 30), "one alone is let through whatever its size");
    assert!(!one.try_admit(&sessions[1], 1));
    one.done(&sessions[0], 1 << 30);
    assert_eq!(one.usage(), TenantUsage::default());
}

#[test]
fn what_sessions_hold_is_bounded_by_limit_and_by_what_is_left() {
    let t = table("[default.limits]\nqueue_pairs = 3\nsessions = 1000\n");
    let one = t.of(&peer(1, 0, &[], None));
    assert_eq!((0..9).filter(|_| one.take(Resource::QueuePairs, 1)).count(), 3);
    let sessions = (0..2000).filter(|_| one.take(Resource::Sessions, 1)).count();
    assert!((330..=342).contains(&sessions), "{sessions}");
    assert!(t.of(&peer(2, 0, &[], None)).take(Resource::Sessions, 100));
    one.give(Resource::QueuePairs, 3);
    assert_eq!(one.usage().queue_pairs, 0);
}

#[test]
fn a_wrong_file_is_refused_by_name() {
    let wrong = [
        ("[[tenant]]\nname = \"a\"\nuids = [1]\ncolour = 1\n", "colour"),
        ("[[tenant]]\nname = \"a b\"\nuids = [1]\n", "a name has"),
        ("[[tenant]]\nname = \"a\"\n", "nobody can belong"),
        ("[[tenant]]\nname = \"a\"\nuids = [1]\nweight = 0\n", "weight 0"),
        ("[[tenant]]\nname = \"a\"\nuids = [1]\nweight = 10001\n", "weight 10001"),
        ("[[tenant]]\nname = \"a\"\nuids = [1]\n[[tenant]]\nname = \"a\"\nuids = [2]\n", "named twice"),
        ("[[tenant]]\nname = \"a\"\nuids = [1]\n[[tenant]]\nname = \"b\"\nuids = [1]\n", "uid 1"),
        ("[[tenant]]\nname = \"a\"\ncgroups = [\"x\"]\n", "cgroup"),
        ("[[tenant]]\nname = \"a\"\nuids = [1]\nlimits = { bytes_in_flight = 5 }\n", "bytes_in_flight 5"),
        ("[[tenant]]\nname = \"a\"\nuids = [1]\nmemory = { cap_bytes = 1, guarantee_bytes = 9 }\n", "cap_bytes"),
        ("[default]\nweight = 0\n", "default"),
    ];
    for (text, names) in wrong {
        let said = TenantsConfig::parse(text).unwrap_err().to_string();
        assert!(said.contains(names), "{text}: {said}");
    }
}
