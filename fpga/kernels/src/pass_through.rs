//! pass-through: the bytes as they come. What slot 0 runs, and what every measurement begins with.
//!
//! Parameters: none. Output: the input.

use weldfs_fpga::kernel::{Fault, Stream};

#[derive(Default)]
pub struct PassThrough;

impl Stream for PassThrough {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        if params.is_empty() { Ok(()) } else { Err(Fault::Params("pass-through takes none".into())) }
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        out.extend_from_slice(input);
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        Ok(())
    }
}
