//! Steps that name a kernel: on the wire, as text, and what the verifier says of them. What a kernel computes is the
//! device's business; here none runs.

use crate::support::*;
use proptest::prelude::*;
use weldfs_ciscops::program::*;
use weldfs_ciscops::*;

/// Sets all registers, and runs a kernel over a literal.
fn with_kernel(name: &str, params: &[Value]) -> Result<Body, Fault> {
    let mut b = Builder::new();
    for _ in 0..8 {
        let to = b.register();
        b.push(Micro::Arith { to, a: Value::Imm(7), op: Arith::Add, b: Value::Imm(0) });
    }
    let (given, made, literal) = (b.buffer(3), b.buffer(100), b.literal(b"abc"));
    b.push(Micro::Fill { buf: given, from: literal, append: false });
    b.kernel(name, params, given, made);
    b.finish()
}

fn any_param() -> impl Strategy<Value = Value> {
    prop_oneof![any::<u32>().prop_map(|v| Value::Imm(v.into())), (0..8u8).prop_map(|r| Value::Reg(Reg(r)))]
}

proptest! {
    #[test]
    fn kernels_and_their_parameters_survive_wire_and_text(
        name in "[a-z][a-z0-9-]{0,12}[a-z0-9](:[a-z]{1,5})?",
        mut params in prop::collection::vec(any_param(), 0..80),
    ) {
        params.iter_mut().skip(64).for_each(|p| *p = Value::Imm(9));
        let body = with_kernel(&name, &params).unwrap();
        let program = body.program();
        prop_assert_eq!(&Program::decode(&program.encode(), 4096).unwrap(), program);
        let printed = text::print(program);
        let parsed = match text::parse(&printed, &[]) {
            Ok(parsed) => parsed,
            Err(e) => return Err(TestCaseError::fail(format!("{e}\n{printed}"))),
        };
        prop_assert_eq!(parsed.body.program().encode(), program.encode(), "{}", printed);
    }
}

#[test]
fn what_no_kernel_step_can_say_is_refused() {
    let refused = |name: &str, params: &[Value]| with_kernel(name, params).map(|_| ()).map_err(|f| (f.errno, f.micro));
    assert_eq!(refused("grep", &[]), Ok(()));
    for name in ["", "Grep", "a b", "gr\u{e9}p", &"a".repeat(limits::KERNEL_NAME_MAX + 1)] {
        assert_eq!(refused(name, &[]), Err((Errno::INVAL, Some(9))), "{name}");
    }
    assert_eq!(refused(&"a".repeat(limits::KERNEL_NAME_MAX), &[]), Ok(()));
    assert_eq!(refused("grep", &[Value::Imm(1 << 32)]), Err((Errno::INVAL, Some(9))), "more than 32 bits");
    assert_eq!(refused("grep", &[Value::Reg(Reg(8))]), Err((Errno::INVAL, Some(9))), "no such register");
    let mut late = vec![Value::Imm(0); 64];
    late.push(Value::Reg(Reg(0)));
    assert_eq!(refused("grep", &late), Err((Errno::INVAL, Some(9))), "a register behind the 64th");
    assert_eq!(refused("grep", &vec![Value::Imm(0); 5000]), Err((Errno::TOOBIG, None)), "more than a body holds");
    let mut b = Builder::new();
    let (given, made) = (b.buffer(3), b.buffer(3));
    b.kernel("grep", &[], given, made);
    assert_eq!(b.finish().map(|_| ()).map_err(|f| f.errno), Err(Errno::INVAL), "a buffer that holds nothing");
    for (text, what) in [
        ("kernel grep( a -> b", "expected"),
        ("kernel 7 a -> b", "expected the name of a kernel"),
        ("buffer a 3; fill a \"abc\"; kernel grep(1,) a -> b", "expected a number or a register"),
        ("buffer a 3; fill a \"abc\"; kernel grep(4294967296) a -> b", "32 bits"),
        ("buffer a 3; fill a \"abc\"; kernel grep(1) a -> b", "how large?"),
    ] {
        let e = text::parse(text, &[]).unwrap_err();
        assert!(e.what.contains(what), "{text}: {e}");
    }
}

#[test]
fn a_text_among_parameters_is_its_bytes_four_to_a_word() {
    let text = "buffer a 3; fill a \"abc\"; buffer b 9; kernel grep(5, \"abcde\", 0x10) a -> b";
    let parsed = text::parse(text, &[]).unwrap();
    let printed = text::print(parsed.body.program());
    let words = [5, u32::from_le_bytes(*b"abcd"), u32::from(b'e'), 16].map(|w| w.to_string()).join(", ");
    assert!(printed.contains(&format!("kernel grep({words}) b0 -> b1")), "{printed}");
}

#[test]
fn a_target_without_slots_has_no_kernels() {
    let body = with_kernel("pass-through", &[]).unwrap();
    let o = Toy::new().run_program(&body, &[], TxnMode::Default);
    assert_eq!((o.status, o.micro_failed), (Errno::OPNOTSUPP.0, 10));
    assert!(body.program().names_kernel() && body.program().is_long());
    assert_eq!(body.program().without_slot_form(), None);
}
