//! Programs as text: any text is a program or says where it is none; what is parsed prints and parses to the same.

use crate::{Seed, Target};
use weldfs_ciscops::program::{Program, text};

/// Texts that use every statement of docs/COMMANDS.md. `@in` has 64 bytes, `k` is a key.
pub const SAMPLES: &[&str] = &[
    "open /f rw create; read 0 4k -> a; crc32c a -> c; append c; close",
    "open /f w create; write 0 @in crc32 -> c; write after c:u32be",
    "open /index r as index # where it is\nread index 0 8 -> head whole\nif holds head 0 \"MAGC\" else fail EBADMSG\n\
     load head 4 u32le -> where\nopen /data r as data\nread data where 5 -> @out count -> n\n\
     if n == 5 else fail ENODATA\nresult n where",
    "open \"/a b\" rw create excl trunc mode 600 as f3 created -> n; size f3 -> r1; truncate f3 4096; sync; close f3",
    "use 3 rw as h; output @o 80; scan h 0 1m head 16 length 4 u32le crc32c 8 from 12 offsets -> @o count -> n \
     end -> e why -> w; \
     truncate h e",
    "open /a r as a; open /b rw create as b; let l = 100k; copy a 0 l -> b end max 128k count -> n; \
     close a; close b",
    "open /f rw; read 0 64 -> b; patch b 1 x\"00ff\"; xor b 2 \"ab\"; and b 0 @in; or b 3 x\"01\"; add b 8 u64le 7; \
     cas b 8 \"a\" \"b\"; write 0 b",
    "let r = 5; let s = r << 3; let t = s max r; if r < s else skip 1; let r = t - 1; result r none",
    "open /z rw create append; fill b @in; extend b \"tail\"; slice b 1 9 -> c; length c -> n; \
     give c -> @o count -> m; append c",
    "open /z rw create; buffer g 4096; buffer e 300; fill d @in; compress lz4 d -> e; append e; decompress lz4 e -> g",
    "open /z rw; fill d \"0123456789abcdef\"; encrypt d -> e key k unit 512 first 3; \
     decrypt e -> g key k unit 512; write 0 e",
    "open /z rw; fill d \"x\"; seal d -> e key k bound \"b\"; unseal e -> g key k bound \"b\"; write 0 e",
    "mkdir /d mode 750; rename /a /d/a noreplace; link /d/a /b follow; symlink \"../x\" /l; unlink /b; rmdir /e; \
     set /d mode 700 mtime nofollow",
    "open /f rw; fill b \"0123\"; add b 0 u16be 3; read 0 4k -> nowhere crc32 -> c; \
     write end c:u64be at -> o; output @o 10; give b -> @o",
];

/// See the module.
pub const TARGET: Target = Target {
    name: "text",
    about: "the text of a fused program, to parser, verifier and printer",
    run,
    seeds,
    len_max: 2048,
};

fn run(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let Ok(parsed) = text::parse_with_keys(source, &[("in", 64)], &[("k", 3)]) else { return };
    let body = parsed.body.program().encode();
    Program::decode(&body, u32::MAX).expect("what is parsed has passed the verifier");
    let printed = text::print(parsed.body.program());
    match text::parse(&printed, &[]) {
        Ok(again) => assert_eq!(text::print(again.body.program()), printed, "parsed to another program"),
        Err(e) => panic!("what was printed is no program: {e}\n{printed}"),
    }
}

fn seeds() -> Vec<Seed> {
    SAMPLES.iter().enumerate().map(|(i, s)| (format!("sample-{i:02}"), s.as_bytes().to_vec())).collect()
}
