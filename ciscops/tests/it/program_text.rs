//! Programs as text: what is printed parses to the same program, what a person writes means what the page says, and
//! what is wrong is said with its place.

use crate::support::micros::*;
use crate::support::*;
use proptest::prelude::*;
use weldfs_ciscops::program::*;
use weldfs_ciscops::*;
use weldfs_functions::crc32c;

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 1 << 20, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn what_is_printed_parses_to_the_same_program(random in prop::collection::vec(any_micro(), 1..7)) {
        let Ok(body) = program_of(&random) else { return Err(TestCaseError::reject("not a program")) };
        let printed = text::print(body.program());
        let parsed = match text::parse(&printed, &[]) {
            Ok(parsed) => parsed,
            Err(e) => return Err(TestCaseError::fail(format!("{e}\n{printed}"))),
        };
        // Strings may be numbered anew: they are in the order of their use.
        prop_assert_eq!(&text::print(parsed.body.program()), &printed);
        let again = text::parse(&printed, &[]).unwrap();
        prop_assert_eq!(again.body.program().encode(), parsed.body.program().encode());
        let (mut one, mut two) = (Toy::new(), Toy::new());
        let run = |toy: &mut Toy, body: &Body| {
            toy.open(b"a", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE).unwrap();
            toy.put(IN[0].off, &[5; 200]);
            let o = toy.run_program(body, &RANGES, TxnMode::Micro);
            (o, toy.state.tree(), OUT.map(|r| toy.get(r.off, r.len as usize)))
        };
        prop_assert_eq!(run(&mut one, &body), run(&mut two, &parsed.body));
    }

    #[test]
    fn any_text_is_a_program_or_an_error(words in prop::collection::vec(prop::sample::select(vec![
        "open", "/f", "rw", "create", ";", "read", "0", "4k", "->", "a", "c", "crc32c", "append", "close", "if", "==",
        "else", "fail", "EBADMSG", "@x", "\"t\"", "x\"0f\"", "let", "=", "+", "as", "f1", "b3", "r2", ":", "u32le",
        "\n",
        "buffer", "9999999999999999999", "-", "\"", "\\", "é", "skip", "holds", "rename", "mode", "copy", "scan",
    ]), 0..20)) {
        let _ = text::parse(&words.join(" "), &[]);
    }
}

#[test]
fn the_example_of_the_page_appends_the_checksum_of_the_first_bytes() {
    let mut toy = Toy::new();
    let source = "open /f rw create; read 0 4k -> a; crc32c a -> c; append c; close";
    let parsed = text::parse(source, &[]).unwrap();
    toy.open(b"/f", OpenFlags::WRITE | OpenFlags::CREATE).unwrap();
    toy.state.files[0] = b"0123456789".to_vec();
    let o = toy.run_program(&parsed.body, &[], TxnMode::Default);
    let sum = crc32c(b"0123456789");
    assert_eq!((o.status, o.micro_done, o.result), (0, 5, sum.into()));
    assert_eq!(toy.state.files[0], [&b"0123456789"[..], &sum.to_le_bytes()].concat());
    assert_eq!(parsed.registers, [("c".to_owned(), Reg(0))]);
}

#[test]
fn two_files_a_dependent_read_and_guards() {
    let mut toy = Toy::new();
    for (name, content) in [(&b"/index"[..], &b"MAGC\x06\0\0\0"[..]), (b"/data", b"......found")] {
        toy.open(name, OpenFlags::WRITE | OpenFlags::CREATE).unwrap();
        *toy.state.files.last_mut().unwrap() = content.to_vec();
    }
    let walk = "open /index r as index   # where it is
                read index 0 8 -> head whole
                if holds head 0 \"MAGC\" else fail EBADMSG
                load head 4 u32le -> where
                open /data r as data
                read data where 5 -> @out count -> n
                if n == 5 else fail ENODATA
                result n where";
    let parsed = text::parse(walk, &[]).unwrap();
    assert_eq!(parsed.ranges.len(), 1);
    assert_eq!((parsed.ranges[0].name.as_str(), parsed.body.pool_len(Pool(0))), ("out", 5));
    let out = [PoolRange::new(OUT_AT, 5)];
    let o = toy.run_program(&parsed.body, &out, TxnMode::Default);
    assert_eq!((o.status, o.result, o.result2), (0, 5, 6));
    assert_eq!(toy.get(OUT_AT, 5), b"found");
    toy.state.files[0][0] = b'm';
    let o = toy.run_program(&parsed.body, &out, TxnMode::Default);
    assert_eq!((o.status, o.micro_failed), (Errno::BADMSG.0, 3));
}

#[test]
fn inputs_have_the_length_of_what_the_caller_has() {
    let parsed = text::parse("open /f w create; write 0 @in crc32 -> c; write after c:u32be", &[("in", 9)]).unwrap();
    assert!(parsed.body.is_input(Pool(0)));
    let mut toy = Toy::new();
    toy.put(SRC_AT, b"123456789");
    let o = toy.run_program(&parsed.body, &[PoolRange::new(SRC_AT, 9)], TxnMode::Default);
    assert_eq!((o.status, o.result), (0, 0xcbf4_3926));
    assert_eq!(toy.state.files[0], b"123456789\xcb\xf4\x39\x26");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let error = |text: &str| text::parse(text, &[]).unwrap_err().to_string();
    for (text, want) in [
        ("opn /f", "line 1, column 1: no statement is called 'opn'"),
        ("open /f rw; read 0 -> a", "line 1, column 20: expected a number or a register, found '->'"),
        ("open /f rw\nread 0 4q -> a", "line 2, column 8: a number is decimal"),
        ("open /f rw; append x", "line 1, column 20: expected a buffer, a register, '@range' or a literal, found 'x'"),
        ("read 0 4 -> a", "line 1, column 6: expected a file (none is open), found 0"),
        ("open /f r; append \"x\"", "line 1, column 12: the file was not opened for that (EBADF)"),
        ("open /f rw; size -> n; read 0 n -> a", "line 1, column 36: how large? say `buffer NAME SIZE` before"),
        ("open /f rw; if 1 = 2 else end", "line 1, column 18: expected ==, !=, <, <=, > or >=, found '='"),
        ("open /f rw; if 1 == 2 else fail EWHAT", "line 1, column 33: no errno is called 'EWHAT'"),
        ("open /f rw mode 888", "line 1, column 17: permission bits are octal, at most 7777"),
        ("open /f rw; append \"x", "line 1, column 20: a literal that does not end on its line"),
        ("open /f rw; append x\"0g\"", "line 1, column 21: x\"..\" holds pairs of hexadecimal digits"),
        ("if 1 == 1 else skip 2; sync", "line 1, column 1: the skip leads out of the program (EINVAL)"),
        ("close f0 f0", "line 1, column 10: expected the end of the statement, found 'f0'"),
        ("", "line 1, column 1: a program without micro-ops (EINVAL)"),
    ] {
        assert!(error(text).starts_with(want), "{text:?}: {}", error(text));
    }
    let long = vec!["sync"; 17].join(";");
    assert!(error(&long).ends_with("(E2BIG)"), "{}", error(&long));
}

/// One of every statement, with every option that it has.
const ALL: [&str; 3] = [
    "buffer b 8k; input @in 100; output @out 64
     open \"/a b\" in 0x100000002 rw create excl trunc append nofollow sync dsync noatime mode 600 as f created -> made
     use 0x100000003 rw as g
     read f 0 4k -> b whole pad crc32c -> c count -> n
     read g n 1m -> nowhere crc32 -> c
     read f 1 64 -> @out count -> n
     write f 10 @in crc32c-masked -> c at -> n; write f after x\"00ff\"; write f end c:u16be
     size f -> n; truncate f n; copy g 0 n -> f end max 64k count -> n
     close f; sync; result n none",
    "open f r as f; output @o 80
     scan f 0 1m head 8 length 4 u32le crc32c-masked 0 be from 4 offsets -> @o count -> n end -> e why -> w
     scan f 0 1m head 2 length 0 u16be crc32 behind
     unlink a; rmdir b in 7; mkdir c mode 700; rename a b noreplace; rename a b exchange
     link a b follow; link handle 9 b; symlink \"to \\n there\" l
     set x mode 4755 size n atime mtime nofollow; set handle 5 size 10",
    "input @in 4000; fill a @in; extend a \"more\"; slice a 1 100 -> b; load b 3 u64be -> x
     let y = x min 5; length b -> x; patch a y \"patched\"; add a 0 u32le x; cas a 4 \"old\" \"new\"
     compress zstd a -> z; encrypt b -> e key 3 unit 512 first x; seal b -> s key 4 bound x:u64le
     unseal s -> b key 4; if holds b 0 \"ab\" else skip 1; if x >= 7 else fail 200; if y != x else fail EBADMSG",
];

#[test]
fn every_statement_is_printed_as_it_is_parsed() {
    for source in ALL {
        let parsed = text::parse(source, &[]).unwrap();
        let printed = text::print(parsed.body.program());
        let again = text::parse(&printed, &[]).unwrap();
        assert_eq!(again.body.program().encode(), parsed.body.program().encode(), "{printed}");
        assert_eq!(text::print(again.body.program()), printed);
    }
}

#[test]
fn every_errno_of_a_guard_is_printed_as_one_that_parses() {
    for number in 1..=4095 {
        let source = format!("open /f r; size -> n; if n == 0 else fail {number}");
        let parsed = text::parse(&source, &[]).unwrap();
        let printed = text::print(parsed.body.program());
        let again = text::parse(&printed, &[]).unwrap_or_else(|e| panic!("{e}: {printed}"));
        assert_eq!(again.body.program().encode(), parsed.body.program().encode(), "{printed}");
    }
}

#[test]
fn outputs_that_may_be_filled_in_part_are_counted_where_a_result_is_free() {
    let parse = |source: &str| text::parse_counting(source, &[], &[]).unwrap();
    for source in ["open /f r; read 0 100 -> @out", "open /f r; read 0 100 -> a; give a -> @out"] {
        let parsed = parse(source);
        let count = parsed.ranges[0].count;
        assert!(count.is_some() && parsed.body.program().results().contains(&count), "{source}");
        assert!(parsed.registers.is_empty(), "{source}: a register that the text does not name");
        assert_eq!(text::parse(source, &[]).unwrap().ranges[0].count, None, "{source}: only for who asks");
    }
    let beside = parse("open /f r; read 0 100 -> @out crc32c -> c");
    assert_eq!(beside.body.program().results()[1], beside.ranges[0].count);
    // Nothing to count, nothing free to count in, or no one number.
    for source in [
        "open /f r; read 0 100 -> @out whole",
        "open /f r; size -> n; read 0 100 -> @out crc32c -> c",
        "open /f r; read 0 100 -> @out; read 100 100 -> @out",
    ] {
        assert_eq!(parse(source).ranges[0].count, None, "{source}");
    }
}
