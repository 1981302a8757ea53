//! What a codec takes beside input and output stays below what it says, whatever the frame says: counted by the
//! allocator itself.
#![cfg(feature = "codecs")]
#![allow(clippy::unwrap_used)] // a test may panic

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use weldfs_functions::Error;
use weldfs_functions::codec::{Codec, Decompressor};

/// The system's allocator, which knows how many bytes each thread holds, and held at most.
struct Counting;

thread_local! {
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    HELD.with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call goes to the system's allocator with the caller's arguments, so its promises hold; counting
// touches a constant-initialised thread-local without a destructor, which neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `ptr` came from `alloc`, which takes it from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn lz4(info: FrameInfo, content: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Bytes that decompression took at most, and what came of it.
fn measured(frame: &[u8], room: usize) -> (usize, Result<usize, Error>) {
    let mut out = Vec::with_capacity(room + (1 << 16));
    HELD.with(|held| held.set((0, 0)));
    let mut run = Decompressor::new(Codec::Lz4, frame, room).unwrap();
    let done = loop {
        match run.step(&mut out, 1 << 16) {
            Ok(true) => {}
            Ok(false) => break Ok(out.len()),
            Err(e) => break Err(e),
        }
    };
    drop(run);
    (HELD.with(Cell::get).1 as usize, done)
}

#[test]
fn lz4_frames_of_every_kind_keep_within_the_memory_that_is_stated() {
    let content: Vec<u8> = (0..13u32 << 20).map(|i| (i / 5000) as u8).collect();
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max1MB, BlockSize::Max4MB] {
            let frame = lz4(FrameInfo::new().block_size(size).block_mode(mode), &content);
            // Frames in a row, too, whose blocks are longer and shorter.
            let small = |size| lz4(FrameInfo::new().block_size(size), b"small");
            let frames = [small(BlockSize::Max4MB), frame, small(BlockSize::Max64KB), small(BlockSize::Max1MB)];
            let (took, done) = measured(&frames.concat(), 16 << 20);
            assert_eq!(done, Ok(content.len() + 15), "{mode:?} {size:?}");
            assert!(took <= Codec::Lz4.working_bytes(), "{took} bytes ({mode:?} {size:?})");
        }
    }
}

#[test]
fn legacy_lz4_frames_are_refused_before_memory_is_taken_for_them() {
    let block = lz4_flex::block::compress(&vec![1; 8 << 20]);
    let legacy = [&0x184c_2102u32.to_le_bytes()[..], &(block.len() as u32).to_le_bytes(), &block].concat();
    let sound = lz4(FrameInfo::new(), b"sound");
    for frame in [legacy.clone(), [sound, legacy].concat()] {
        let (took, done) = measured(&frame, 16 << 20);
        assert_eq!(done, Err(Error::Corrupt));
        assert!(took < 1 << 20, "{took} bytes");
    }
}
