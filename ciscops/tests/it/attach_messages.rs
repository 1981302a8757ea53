//! Attach messages: what is encoded decodes to itself; what is not well-formed is refused; features and versions
//! negotiate as the document says.

use proptest::prelude::*;
use weldfs_ciscops::attach::*;
use weldfs_ciscops::*;

fn requests() -> Vec<Request> {
    vec![
        Request::Hello {
            hello: Hello { version_min: 1, version_max: 3, prefix_len: 5, client_id: [7; 16], ..Hello::default() },
            prefix: b"/weld".to_vec(),
        },
        Request::NewQueue(NewQueue { depth: 64, pool_bytes: 1 << 20 }),
        Request::Placeholders { count: 16 },
        Request::Share(Share {
            count: 2,
            handles: {
                let mut h = [0; 16];
                (h[0], h[1]) = (1 << 32 | 4, 1 << 32 | 5);
                h
            },
            ..Share::default()
        }),
        Request::Claim { anew: false },
        Request::Claim { anew: true },
        Request::Stats { detail: 0 },
        Request::Stats { detail: detail::INODE_QUEUES },
        Request::Trace { start: Some(1000) },
        Request::Trace { start: None },
        Request::Tune(b"scheduler.policy=cfs".to_vec()),
        Request::Kernels(Vec::new()),
        Request::Kernels(b"load /opt/kernels/grep".to_vec()),
        Request::Detach,
        Request::Join(Token(*b"sixteen bytes it")),
        Request::Tenants,
        Request::Stop,
        Request::Token(b"web".to_vec()),
    ]
}

fn replies() -> Vec<(u16, Reply)> {
    let layout = QueueLayout::new(64, 1 << 20).unwrap();
    vec![
        (kind::HELLO, Reply::Welcome(Box::new(Welcome { session: 9, ..Welcome::default() }))),
        (kind::NEW_QUEUE, Reply::Queue(QueueReply { index: 1, reserved: 0, layout })),
        (kind::PLACEHOLDERS, Reply::Placeholders(PlaceholdersReply { count: 2, reserved: 0, ids: [5; 16] })),
        (kind::CLAIM, Reply::Claimed(Claimed { handle: 1 << 32 | 4, flags: 3, mode: 0o100644, ..Claimed::default() })),
        (kind::STATS, Reply::Text(b"{}".to_vec())),
        (kind::TUNE, Reply::Text(Vec::new())),
        (kind::KERNELS, Reply::Text(b"{}".to_vec())),
        (kind::JOIN, Reply::Done),
        (kind::TENANTS, Reply::Text(b"[]".to_vec())),
        (kind::STOP, Reply::Done),
        (kind::TOKEN, Reply::Token(Token([9; 16]))),
        (kind::TRACE, Reply::Done),
        (kind::DETACH, Reply::Done),
    ]
}

#[test]
fn messages_decode_to_what_was_encoded() {
    for r in requests() {
        assert_eq!(Request::decode(&r.encode()), Ok(r));
    }
    for (request, r) in replies() {
        assert_eq!(Reply::decode(&r.encode(request), request), Ok(r));
        assert_eq!(Reply::decode(&Reply::encode_error(request, Errno::MFILE), request), Err(Errno::MFILE));
    }
}

#[test]
fn a_cut_or_lengthened_message_is_refused() {
    for r in requests() {
        let bytes = r.encode();
        for cut in 0..bytes.len() {
            assert_eq!(Request::decode(&bytes[..cut]), Err(Errno::PROTO), "{r:?} cut to {cut}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Request::decode(&longer), Err(Errno::PROTO));
    }
}

#[test]
fn wrong_values_have_their_errno() {
    let hello = |h: Hello| Request::decode(&Request::Hello { hello: h, prefix: vec![] }.encode());
    assert_eq!(hello(Hello { reserved: 1, ..Hello::default() }), Err(Errno::INVAL));
    let nul = Request::Hello { hello: Hello::default(), prefix: b"a\0".to_vec() };
    assert_eq!(Request::decode(&nul.encode()), Err(Errno::INVAL));
    for count in [0, 17, u32::MAX] {
        assert_eq!(Request::decode(&Request::Placeholders { count }.encode()), Err(Errno::INVAL));
    }
    let mut unknown = Request::Stats { detail: 0 }.encode();
    unknown[6] = 99;
    assert_eq!(Request::decode(&unknown), Err(Errno::NOSYS));
    assert_eq!(Request::decode(&Request::Stats { detail: u32::MAX }.encode()), Err(Errno::INVAL));
    let mut trace = Request::Trace { start: Some(7) }.encode();
    trace[16] = 2;
    assert_eq!(Request::decode(&trace), Err(Errno::INVAL));
    let mut magic = Request::Stats { detail: 0 }.encode();
    magic[0] ^= 1;
    assert_eq!(Request::decode(&magic), Err(Errno::PROTO));
}

#[test]
fn versions_and_features_negotiate() {
    let known = 0b11;
    let hello = Hello { version_min: 1, version_max: 9, ..Hello::default() };
    assert_eq!(negotiate(&hello, known), Ok((1, 0)));
    assert_eq!(negotiate(&Hello { version_min: 2, ..hello }, known), Err(Errno::PROTO));
    assert_eq!(negotiate(&Hello { features_wanted: u64::MAX, ..hello }, known), Ok((1, 0b11)));
    assert_eq!(negotiate(&Hello { features_required: 0b10, ..hello }, known), Ok((1, 0b10)));
    assert_eq!(negotiate(&Hello { features_required: 0b100, ..hello }, known), Err(Errno::OPNOTSUPP));
}

#[test]
fn a_token_is_thirty_two_digits_and_does_not_show_in_reports() {
    let token = Token([0x0a; 16]);
    assert_eq!(token.to_string(), "0a".repeat(16));
    assert_eq!(token.to_string().parse(), Ok(token));
    assert!(!format!("{token:?}").contains("0a"));
    for wrong in ["", "0a", &"0a".repeat(17), &"+a".repeat(16), &"0g".repeat(16)] {
        assert_eq!(wrong.parse::<Token>(), Err(Errno::INVAL), "{wrong}");
    }
}

proptest! {
    #[test]
    fn arbitrary_packets_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        which in 0..requests().len(),
        at in 0..80usize,
    ) {
        let _ = Request::decode(&bytes);
        for request in 1..14 {
            let _ = Reply::decode(&bytes, request);
        }
        let mut near = requests()[which].encode();
        for (i, b) in bytes.iter().take(4).enumerate() {
            let n = near.len();
            near[(at + i) % n] ^= b;
        }
        let _ = Request::decode(&near);
    }
}
