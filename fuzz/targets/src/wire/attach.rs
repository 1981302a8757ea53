//! Attach messages: any packet is a request, or a reply, or an errno; what is believed encodes to what is believed.

use crate::cursor::Cursor;
use crate::{Seed, Target};
use weldfs_ciscops::attach::{
    Claimed, Hello, NewQueue, PlaceholdersReply, QueueReply, Reply, Request, Share, Token, Welcome, kind, negotiate,
};
use weldfs_ciscops::trace;
use weldfs_ciscops::{QueueLayout, dirent};

/// Kinds of requests, for the side that reads answers.
const KINDS: [u16; 12] = [
    kind::HELLO,
    kind::NEW_QUEUE,
    kind::PLACEHOLDERS,
    kind::CLAIM,
    kind::STATS,
    kind::TRACE,
    kind::TUNE,
    kind::DETACH,
    kind::JOIN,
    kind::TENANTS,
    kind::TOKEN,
    kind::SHARE,
];

/// See the module.
pub const TARGET: Target = Target {
    name: "attach",
    about: "packets of the control socket, traces and listings, to whoever reads them",
    run,
    seeds,
    len_max: 2048,
};

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    match data.u8() % 4 {
        0 => request(data.rest()),
        1 => {
            let kind = KINDS[usize::from(data.u8()) % KINDS.len()];
            let Ok(reply) = Reply::decode(data.rest(), kind) else { return };
            assert_eq!(Reply::decode(&reply.encode(kind), kind), Ok(reply));
        }
        2 => {
            let Ok(read) = trace::decode(data.rest()) else { return };
            let again = trace::encode(read.facts, &read.slices, &read.spans);
            let same = trace::decode(&again).expect("what is written is read");
            assert_eq!(same.facts.trim_end(), read.facts.trim_end());
            assert_eq!((same.slices, same.spans), (read.slices, read.spans));
        }
        _ => {
            let bytes = data.rest();
            // Listings end, whatever they hold.
            assert!(dirent::Dirents(bytes).count() <= bytes.len());
            assert!(dirent::DirentsPlus(bytes).count() <= bytes.len());
        }
    }
}

fn request(packet: &[u8]) {
    let Ok(request) = Request::decode(packet) else { return };
    if let Request::Hello { hello, .. } = &request {
        let _ = negotiate(hello, u64::MAX);
        let _ = negotiate(hello, 0);
    }
    let again = Request::decode(&request.encode());
    match (&request, &again) {
        // `encode` sets the length of the prefix, which `decode` found to be right.
        (Request::Hello { prefix: a, .. }, Ok(Request::Hello { prefix: b, .. })) => assert_eq!(a, b),
        // What one does not ask for is not sent.
        _ => assert_eq!(again, Ok(request)),
    }
}

fn seeds() -> Vec<Seed> {
    let layout = QueueLayout::new(64, 1 << 20).expect("within the limits");
    let requests = [
        ("hello", Request::Hello { hello: Hello::default(), prefix: b"/weld".to_vec() }),
        ("queue", Request::NewQueue(NewQueue::default())),
        ("placeholders", Request::Placeholders { count: 3 }),
        ("share", Request::Share(Share { count: 1, ..Share::default() })),
        ("claim", Request::Claim { anew: false }),
        ("claim-anew", Request::Claim { anew: true }),
        ("stats", Request::Stats { detail: 1 }),
        ("trace", Request::Trace { start: Some(100) }),
        ("tune", Request::Tune(b"quantum=1".to_vec())),
        ("kernels", Request::Kernels(b"load /k".to_vec())),
        ("join", Request::Join(Token([7; 16]))),
        ("tenants", Request::Tenants),
        ("token", Request::Token(b"name".to_vec())),
        ("detach", Request::Detach),
    ];
    let replies = [
        (0, Reply::Welcome(Box::new(zerocopy::FromZeros::new_zeroed()) as Box<Welcome>)),
        (1, Reply::Queue(QueueReply { layout, ..QueueReply::default() })),
        (2, Reply::Placeholders(PlaceholdersReply::default())),
        (3, Reply::Claimed(Claimed::default())),
        (4, Reply::Text(b"{}".to_vec())),
        (7, Reply::Done),
    ];
    let mut all: Vec<Seed> =
        requests.into_iter().map(|(name, r)| (format!("request-{name}"), [&[0][..], &r.encode()].concat())).collect();
    all.extend(
        replies.into_iter().map(|(i, r)| (format!("reply-{i}"), [&[1, i as u8][..], &r.encode(KINDS[i])].concat())),
    );
    let slices = [trace::Slice { start_ns: 1, end_ns: 2, ..trace::Slice::default() }; 2];
    let spans = [trace::SlotSpan { start_ns: 1, end_ns: 2, ..trace::SlotSpan::default() }; 2];
    all.push(("trace".into(), [&[2][..], &trace::encode("{\"a\":1}", &slices, &spans)].concat()));
    let listing = weldfs_ciscops::SharedRegion::heap(256);
    if let Ok(room) = listing.bytes(0, 256) {
        let mut w = dirent::DirentWriter::new(room);
        w.push(1, 5, 4, b"dir");
        w.push(2, 9, 8, b"file");
        let used = w.used();
        all.push(("listing".into(), [&[3][..], &room.to_vec()[..used]].concat()));
    }
    all
}
