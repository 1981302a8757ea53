//! The widest registers that this processor has, for loops that the compiler makes vectors of.

/// Runs `work` compiled for the processor at hand (AVX2 on x86-64), as far as it is inlined.
pub fn wide<R>(work: impl FnOnce() -> R) -> R {
    struct Work<F>(F);
    impl<R, F: FnOnce() -> R> pulp::NullaryFnOnce for Work<F> {
        type Output = R;
        #[inline(always)]
        fn call(self) -> R {
            self.0()
        }
    }
    pulp::Arch::new().dispatch(Work(work))
}
