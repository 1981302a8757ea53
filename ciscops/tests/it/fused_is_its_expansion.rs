//! A fused op does what its expansion does when a client runs it step by step as single ops: same files, same bytes
//! handed back, same results. When a step fails, nothing at all stays of a MacroTx, and of a MicroTx the steps before;
//! and whoever goes on behind any step with nothing but the registers ends where the command would have.

use crate::support::*;
use proptest::prelude::*;
use weldfs_ciscops::catalogue::{self, From, Micro, Spot, To};
use weldfs_ciscops::*;
use weldfs_functions::crc32c;

/// What a client must do by itself when there are no fused ops: single commands, and its own arithmetic.
fn unfused(toy: &mut Toy, op: &Op) -> Result<(), Errno> {
    let path = toy.get(PATH_AT, 8);
    let mut h = None;
    let (mut scratch, mut sum, mut last) = (Vec::new(), 0u32, 0u64);
    let result = (|| {
        for micro in catalogue::expand(op).unwrap() {
            match micro {
                Micro::Open { flags, .. } => h = Some(toy.open(path.split(|b| *b == 0).next().unwrap(), flags)?),
                Micro::Use { h: given, .. } => h = Some(given),
                Micro::Read { span, to, sum: summed } => {
                    let out = match to {
                        To::Pool(range) => range,
                        To::Scratch | To::Discard => PoolRange::new(ARG_AT + 4096, span.len),
                    };
                    toy.pool.slice(PoolRange::new(ARG_AT + 4096, 4096)).unwrap().zero();
                    let n = done(toy.run(Op::Read { h: h.unwrap(), at: At::Offset(span.off), out, watch: 0 }))?.0;
                    let bytes = toy.get(out.off, out.len as usize);
                    if span.whole && n < span.len as u64 {
                        return Err(Errno::NODATA);
                    }
                    if summed {
                        sum = crc32c(&bytes);
                    }
                    if to == To::Scratch {
                        scratch = bytes;
                    }
                }
                Micro::Write { spot, from, sum: summed } => {
                    let src = match from {
                        From::Pool(range) => range,
                        From::Scratch => toy.put(ARG_AT + 8192, &scratch),
                        From::Sum => toy.put(ARG_AT + 8192, &sum.to_le_bytes()),
                    };
                    if summed {
                        sum = crc32c(&toy.get(src.off, src.len as usize));
                    }
                    let at = match spot {
                        Spot::At(at) => at,
                        Spot::AfterWrite => At::Offset(last),
                    };
                    let (len, off) = done(toy.run(Op::Write { h: h.unwrap(), at, src }))?;
                    last = off + len;
                }
                Micro::Change { modify, old } => client_change(toy, &mut scratch, modify, old)?,
                Micro::Verify if scratch != sum.to_le_bytes() => return Err(Errno::BADMSG),
                Micro::Verify => {}
                Micro::Close => {}
            }
        }
        Ok(())
    })();
    if let (Some(h), true) = (h, matches!(catalogue::expand(op).unwrap()[0], Micro::Open { .. })) {
        toy.run(Op::Close { h });
    }
    result
}

fn client_change(toy: &Toy, scratch: &mut [u8], modify: Modify, old: PoolRange) -> Result<(), Errno> {
    if !old.is_empty() {
        toy.put(old.off, scratch);
    }
    let n = scratch.len();
    match modify {
        Modify::Patch(r) => scratch.copy_from_slice(&toy.get(r.off, n)),
        Modify::Add(v) => {
            let mut wide = [0; 8];
            wide[..n].copy_from_slice(scratch);
            let sum = u64::from_le_bytes(wide).wrapping_add(v);
            scratch.copy_from_slice(&sum.to_le_bytes()[..n]);
        }
        Modify::Xor(r) => toy.get(r.off, n).iter().zip(scratch).for_each(|(b, s)| *s ^= b),
        Modify::XorImm(imm) => imm.iter().zip(scratch).for_each(|(b, s)| *s ^= b),
        Modify::CompareSwap { expect, new } => {
            if toy.get(expect.off, n) != scratch {
                return Err(Errno::CANCELED);
            }
            scratch.copy_from_slice(&toy.get(new.off, n));
        }
    }
    Ok(())
}

fn done(o: Outcome) -> Result<(u64, u64), Errno> {
    if o.is_ok() { Ok((o.result, o.result2)) } else { Err(Errno(o.status)) }
}

/// Two toys in the same state, with files a, b (perhaps with a valid record), a handle on a, and bytes in the pool.
fn twins(content: &[u8], src: &[u8], name: &[u8]) -> (Toy, Toy, Handle) {
    let make = || {
        let mut toy = Toy::new();
        let h = toy.open(b"a", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE).unwrap();
        let data = toy.put(SRC_AT, content);
        toy.run(Op::Write { h, at: At::Offset(0), src: data });
        toy.pool.slice(PoolRange::new(0, POOL)).unwrap().zero();
        toy.put(PATH_AT, name);
        toy.put(SRC_AT, src);
        (toy, h)
    };
    let ((a, h), (b, _)) = (make(), make());
    (a, b, h)
}

fn any_flags() -> impl Strategy<Value = OpenFlags> {
    let extra = [OpenFlags::CREATE, OpenFlags::EXCL, OpenFlags::TRUNC, OpenFlags::APPEND];
    prop::collection::vec(prop::sample::select(extra.to_vec()), 0..3)
        .prop_map(|v| v.into_iter().fold(OpenFlags::READ | OpenFlags::WRITE, |a, f| a | f))
}

fn any_at() -> impl Strategy<Value = At> {
    prop_oneof![(0..300u64).prop_map(At::Offset), Just(At::End), Just(At::Offset(2 << 20))]
}

fn any_modify(len: u32) -> impl Strategy<Value = Modify> {
    let src = PoolRange::new(SRC_AT, len);
    let zeros = PoolRange::new(ARG_AT, len);
    prop_oneof![
        Just(Modify::Patch(src)),
        any::<u64>().prop_map(Modify::Add),
        Just(Modify::Xor(src)),
        any::<u128>().prop_map(move |v| Modify::XorImm(if len >= 16 {
            v.to_le_bytes()
        } else {
            (v & ((1 << (8 * len)) - 1)).to_le_bytes()
        })),
        Just(Modify::CompareSwap { expect: src, new: zeros }),
        Just(Modify::CompareSwap { expect: zeros, new: src }),
    ]
}

/// A fused op over a file name and handle of `twins`.
fn any_op(h: Handle) -> impl Strategy<Value = Op> {
    let base = Handle::ROOT;
    let path = PoolRange::new(PATH_AT, 1);
    let range = |at: u32| (0..200u32).prop_map(move |len| PoolRange::new(at, len));
    let kind = ChecksumKind::Crc32c;
    prop_oneof![
        (any_flags(), any_at(), range(SRC_AT)).prop_map(move |(flags, at, src)| Op::OpenWriteClose {
            base,
            path,
            flags,
            mode: 0o644,
            at,
            src
        }),
        (0..300u64, range(OUT_AT)).prop_map(move |(offset, out)| Op::OpenReadClose {
            base,
            path,
            flags: OpenFlags::READ,
            offset,
            out
        }),
        (any_flags(), 0..300u64, range(OUT_AT), any_at(), range(SRC_AT)).prop_map(
            move |(flags, read_off, out, at, src)| Op::OpenReadWriteClose {
                base,
                path,
                flags,
                mode: 0o600,
                read_off,
                out,
                at,
                src
            }
        ),
        range(SRC_AT).prop_map(move |src| Op::AppendChecksumWrite { h, kind, src }),
        (0..300u64, 0..200u32, any::<bool>()).prop_map(move |(offset, len, show)| {
            let out = PoolRange::new(OUT_AT, if show { len } else { 0 });
            Op::ReadChecksumVerify { h, kind, offset, len, out }
        }),
        (0..300u64, prop::sample::select(vec![1u32, 2, 4, 8]), any::<bool>())
            .prop_flat_map(|(o, len, show)| (Just(o), Just(len), Just(show), any_modify(len)))
            .prop_map(move |(offset, len, show, modify)| {
                let out = PoolRange::new(OUT_AT, if show { len } else { 0 });
                Op::ReadModifyWrite { h, offset, len, modify, out }
            }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_fused_op_equals_its_expansion_run_as_single_ops(
        content in prop::collection::vec(any::<u8>(), 0..300),
        src in prop::collection::vec(any::<u8>(), 200),
        name in prop::sample::select(vec![b"a", b"n"]),
        op in any_op(Handle { index: 1, generation: 0 }),
        mode in prop::sample::select(vec![TxnMode::Default, TxnMode::Macro, TxnMode::Micro]),
    ) {
        let (mut one, mut many, h) = twins(&content, &src, name);
        prop_assert_eq!(h, Handle { index: 1, generation: 0 });
        let before = one.state.clone();
        let outcome = one.run_with(op, mode);
        let stepwise = unfused(&mut many, &op);
        prop_assert_eq!(outcome.status, stepwise.map_or_else(|e| e.0, |()| 0), "{:?}", op);
        prop_assert_eq!(one.get(OUT_AT, 256), many.get(OUT_AT, 256), "bytes handed back");
        if outcome.is_ok() {
            prop_assert_eq!(one.state.tree(), many.state.tree());
            prop_assert_eq!(outcome.micro_done as usize, catalogue::expand(&op).unwrap().len());
            prop_assert_eq!(outcome.micro_failed, 0);
        } else if Command::new(0, op).with_mode(mode).commits_in_steps() {
            prop_assert_eq!(one.state.tree(), many.state.tree(), "the steps before the failure stand");
            prop_assert_eq!(outcome.micro_done + 1, outcome.micro_failed);
        } else {
            prop_assert_eq!(one.state, before, "a failed MacroTx leaves nothing");
            prop_assert_eq!(outcome.micro_done, 0);
            prop_assert!(outcome.micro_failed > 0);
        }
    }

    #[test]
    fn a_step_and_its_registers_are_enough_to_finish(
        content in prop::collection::vec(any::<u8>(), 0..300),
        src in prop::collection::vec(any::<u8>(), 200),
        name in prop::sample::select(vec![b"a", b"n"]),
        op in any_op(Handle { index: 1, generation: 0 }),
    ) {
        // What a read left in the scratch buffer is not kept: such commands change one thing and commit as one record.
        if !Command::new(0, op).commits_in_steps() {
            return Ok(());
        }
        let (mut toy, _, _) = twins(&content, &src, name);
        let outcome = toy.run(op);
        for step in &toy.steps {
            let (finished, state) = toy.finish(op, TxnMode::Default, step);
            prop_assert_eq!(finished, outcome, "from {:?}", step);
            if outcome.is_ok() {
                prop_assert_eq!(&state, &toy.state);
            }
        }
    }

    #[test]
    fn what_append_checksum_write_stored_verifies(
        src in prop::collection::vec(any::<u8>(), 0..200),
        flip in 0..1600usize,
    ) {
        let (mut toy, _, h) = twins(b"prefix", &src, b"a");
        let kind = ChecksumKind::Crc32c;
        let len = src.len() as u32;
        let o = toy.run(Op::AppendChecksumWrite { h, kind, src: PoolRange::new(SRC_AT, len) });
        prop_assert_eq!((o.status, o.result, o.result2), (0, 6, crc32c(&src) as u64));
        let verify = Op::ReadChecksumVerify { h, kind, offset: 6, len, out: PoolRange::new(OUT_AT, len) };
        let o = toy.run(verify);
        prop_assert_eq!((o.status, o.result, o.result2), (0, len as u64, crc32c(&src) as u64));
        prop_assert_eq!(toy.get(OUT_AT, src.len()), src);
        let bits = (toy.state.files[0].len() - 6) * 8;
        let bit = 48 + flip % bits;
        toy.state.files[0][bit / 8] ^= 1 << (bit % 8);
        let o = toy.run(verify);
        prop_assert_eq!((o.status, o.micro_failed), (Errno::BADMSG.0, 4));
    }
}

#[test]
fn results_are_those_the_specification_names() {
    let (mut toy, _, h) = twins(b"0123456789", b"XYZ", b"n");
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let path = PoolRange::new(PATH_AT, 1);
    let src = PoolRange::new(SRC_AT, 3);
    let owc = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at: At::Offset(5), src };
    let o = toy.run(owc);
    assert_eq!((o.result, o.result2), (3, 5 | interp::CREATED));
    assert_eq!(toy.run(owc).result2, 5, "not created the second time");

    let rw = OpenFlags::READ | OpenFlags::WRITE;
    let out = PoolRange::new(OUT_AT, 6);
    let o = toy.run(Op::OpenReadWriteClose {
        base: Handle::ROOT,
        path,
        flags: rw,
        mode: 0,
        read_off: 4,
        out,
        at: At::End,
        src,
    });
    assert_eq!(
        (o.result, o.result2, toy.get(OUT_AT, 6)),
        (4, 8, b"\0XYZ\0\0".to_vec()),
        "old content, then the append"
    );

    let counter =
        |offset| Op::ReadModifyWrite { h, offset, len: 8, modify: Modify::Add(5), out: PoolRange::new(OUT_AT, 8) };
    let o = toy.run(counter(9));
    assert_eq!((o.status, o.result), (0, 1), "one old byte was there, the rest counts as zeros");
    assert_eq!(toy.state.files[0], b"012345678\x3e\0\0\0\0\0\0\0");

    let expect = toy.put(ARG_AT, b"no");
    let cas = Modify::CompareSwap { expect, new: PoolRange::new(SRC_AT, 2) };
    let o = toy.run(Op::ReadModifyWrite { h, offset: 0, len: 2, modify: cas, out: PoolRange::new(OUT_AT, 2) });
    assert_eq!((o.status, o.micro_failed, o.result), (Errno::CANCELED.0, 3, 2));
    assert_eq!(toy.get(OUT_AT, 2), b"01", "the old bytes come back with the refusal");
}

#[test]
fn what_changes_in_steps_is_a_micro_tx_unless_asked_otherwise() {
    let (h, base, kind) = (Handle::ROOT, Handle::ROOT, ChecksumKind::Crc32c);
    let (path, src, out, at) = (PoolRange::EMPTY, PoolRange::EMPTY, PoolRange::EMPTY, At::Offset(0));
    let write = |flags| Op::OpenWriteClose { base, path, flags, mode: 0, at, src };
    let both = |flags| Op::OpenReadWriteClose { base, path, flags, mode: 0, read_off: 0, out, at, src };
    let (w, c, t) = (OpenFlags::WRITE, OpenFlags::CREATE, OpenFlags::TRUNC);
    let modify = Op::ReadModifyWrite { h, offset: 0, len: 8, modify: Modify::Add(1), out };
    let micro = [write(w | c), write(w | t), both(w | c), both(w | t), Op::AppendChecksumWrite { h, kind, src }];
    let macros = [write(w), both(w), modify, Op::ReadChecksumVerify { h, kind, offset: 0, len: 0, out }];
    for (op, default) in micro.map(|op| (op, TxnMode::Micro)).into_iter().chain(macros.map(|op| (op, TxnMode::Macro))) {
        let mode_of = |asked| Command::new(0, op).with_mode(asked).mode_of();
        assert!(op.is_fused());
        assert_eq!(mode_of(TxnMode::Default), default, "{op:?}");
        assert_eq!((mode_of(TxnMode::Macro), mode_of(TxnMode::Micro)), (TxnMode::Macro, TxnMode::Micro));
    }
    for op in [Op::Nop, Op::Write { h, at, src }, Op::Truncate { h, size: 0 }] {
        let cmd = Command::new(0, op).with_mode(TxnMode::Micro);
        assert_eq!(cmd.mode_of(), TxnMode::Macro, "a single op is one step");
    }
}

#[test]
fn the_fused_ops_are_those_that_expand() {
    for spec in weldfs_ciscops::OPS {
        let sqe = Sqe { opcode: spec.opcode as u16, ..Sqe::default() };
        if let Ok(cmd) = validate(&RawCommand(sqe), &SessionLimits { pool_bytes: POOL }) {
            assert_eq!(cmd.op.is_fused(), catalogue::expand(&cmd.op).is_some(), "{:?}", cmd.op);
        }
    }
}

#[test]
fn a_write_through_an_append_description_goes_to_the_end() {
    let (mut toy, _, _) = twins(b"abc", b"XY", b"a");
    let h = toy.open(b"a", OpenFlags::WRITE | OpenFlags::APPEND).unwrap();
    let src = PoolRange::new(SRC_AT, 2);
    for at in [At::Offset(0), At::Current, At::End] {
        let o = toy.run(Op::Write { h, at, src });
        assert_eq!(o.status, 0);
    }
    assert_eq!(toy.state.files[0], b"abcXYXYXY");
}

#[test]
fn current_moves_by_what_was_transferred() {
    let (mut toy, _, _) = twins(b"0123456789", b"XY", b"a");
    let h = toy.open(b"a", OpenFlags::READ | OpenFlags::WRITE).unwrap();
    let out = PoolRange::new(OUT_AT, 4);
    let (src, at) = (PoolRange::new(SRC_AT, 2), At::Current);
    assert_eq!(toy.run(Op::Read { h, at, out, watch: 0 }).result2, 0);
    assert_eq!(toy.run(Op::Write { h, at, src }).result2, 4);
    assert_eq!(toy.run(Op::Read { h, at: At::Offset(1), out, watch: 0 }).result2, 1);
    let o = toy.run(Op::Read { h, at, out, watch: 0 });
    assert_eq!((o.result, o.result2), (4, 6));
    assert_eq!(toy.run(Op::Read { h, at, out, watch: 0 }).result, 0, "end of file");
    assert_eq!(toy.state.files[0], b"0123XY6789");
}

#[test]
fn session_level_ops_are_not_for_the_interpreter() {
    let long = Op::ChecksumRange { h: Handle::ROOT, kind: ChecksumKind::Crc32c, offset: 0, len: 1 };
    for op in [Op::Nop, Op::Syncfs, Op::Fsync { h: Handle::ROOT }, long] {
        assert!(op.is_session_level());
        let mut state = State::default();
        let pool = SharedRegion::heap(4096);
        let o = block_on(interp::run(&Command::new(0, op), &Paths::default(), &pool, &mut state));
        assert_eq!(o.status, Errno::NOSYS.0);
    }
}

#[test]
fn set_attr_believes_only_sound_bodies() {
    use zerocopy::IntoBytes;
    let (mut toy, _, _) = twins(b"abc", b"", b"a");
    let set = PoolRange::new(ARG_AT, 64);
    let good = SetAttrBody { mask: SetAttrMask::SIZE.bits(), size: 1, ..SetAttrBody::default() };
    let mut run = |body: SetAttrBody| {
        toy.put(ARG_AT, body.as_bytes());
        let path = PoolRange::new(PATH_AT, 1);
        toy.run(Op::SetAttrPath { base: Handle::ROOT, path, nofollow: false, set }).status
    };
    assert_eq!(run(good), 0);
    for bad in [
        SetAttrBody { mask: 1 << 8, ..good },
        SetAttrBody { mode: 0o10000, ..good },
        SetAttrBody { size: 1 << 63, ..good },
        SetAttrBody { reserved: 1, ..good },
        SetAttrBody { atime: WireTime::new(0, 1_000_000_000), ..good },
        SetAttrBody { mask: (SetAttrMask::MTIME | SetAttrMask::MTIME_NOW).bits(), ..good },
    ] {
        assert_eq!(run(bad), Errno::INVAL.0, "{bad:?}");
    }
}
