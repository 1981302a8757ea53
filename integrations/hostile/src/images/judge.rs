//! What may become of a damaged image: refused in a sentence, EIO, or the truth.

use super::harm::{Harmed, MARK};
use super::look::{EIO, Look, look};
use super::names::Held;
use super::pristine::Pristine;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weldfs_crash_harness::hand::{Hand, small_mount};
use weldfs_fuzz_targets::media::{Base, image};
use weldfs_media::{CowImage, CowMedium, CrashModel};
use weldfs_store::MountOptions;
use weldfs_store::fsck::{FsckReport, fsck};
use weldfs_store::scrub::{ScrubOptions, scrub};

/// What a sound judgement found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No mount takes it.
    Refused,
    /// It mounts, and something is EIO.
    Errors,
    /// It shows the tree before commands that nothing vouches for.
    Cut,
    /// All of it is readable.
    Whole,
}

/// A new file's name and content.
const NEW: &str = "made-after-the-damage";
const NEW_BYTES: [u8; 5000] = [0x3c; 5000];

/// Judges one image.
///
/// # Errors
/// What must not be.
pub fn judge(harmed: &Harmed) -> Result<Verdict, String> {
    match harmed {
        Harmed::Plain { of, image } => plain(of, image),
        Harmed::Sealed { of, image, input, marked } => sealed(of, image, input, *marked),
    }
}

struct Mounted {
    hand: Hand,
    medium: Arc<CowMedium>,
    /// Whether the mount said that something was found behind the end of the log.
    told_of_more: bool,
}

fn one_sentence(said: &str) -> Result<(), String> {
    let one = !said.is_empty() && !said.contains('\n');
    if one { Ok(()) } else { Err(format!("refused in no sentence: `{said}`")) }
}

/// `Ok(None)` where it is refused.
fn mount(image: &CowImage, model: CrashModel, read_only: bool) -> Result<Option<Mounted>, String> {
    let medium = Arc::new(CowMedium::new(image.clone(), model));
    let options = MountOptions { read_only, ..small_mount(11) };
    match weldfs_fs::mount(medium.clone(), options) {
        Ok((store, report)) => {
            let told_of_more = report.discarded.is_some();
            Ok(Some(Mounted { hand: Hand::new(store), medium, told_of_more }))
        }
        Err(e) => {
            one_sentence(&e.to_string())?;
            if read_only {
                same(&medium, image)?
            }
            Ok(None)
        }
    }
}

fn same(medium: &CowMedium, image: &CowImage) -> Result<(), String> {
    let equal = medium.image().digest() == image.digest();
    if equal { Ok(()) } else { Err("what only reads changed the image".into()) }
}

/// fsck and scrub; `None` where they do not look. Neither may change a byte.
fn check(image: &CowImage, model: CrashModel) -> Result<Option<FsckReport>, String> {
    let medium = Arc::new(CowMedium::new(image.clone(), model));
    let report = match fsck(medium.clone(), small_mount(12), true) {
        Ok(report) => Some(report),
        Err(e) => {
            one_sentence(&e.to_string())?;
            None
        }
    };
    same(&medium, image)?;
    Ok(report)
}

/// Whether scrub finds every checksum right.
fn scrubbed(mounted: &Mounted) -> Result<bool, String> {
    let stop = AtomicBool::new(false);
    let report = scrub(mounted.hand.store(), &ScrubOptions { rate: None, stop: &stop }, &mut ());
    report.map(|r| r.clean).or_else(|e| one_sentence(&e.to_string()).map(|()| false))
}

/// Errors are errnos, and what is EIO is told by fsck and by scrub.
fn told(shown: &Look, clean: bool, scrubbed: bool) -> Result<(), String> {
    for e in shown.errors() {
        if !(1..4096).contains(&e) {
            return Err(format!("{e} is no errno"));
        }
        if e == EIO && (clean || scrubbed) {
            return Err(format!("{} finds nothing, and something is EIO", if clean { "fsck" } else { "scrub" }));
        }
    }
    Ok(())
}

/// Whole records behind the end of the log are in the report of whoever mounts it.
pub fn of_lost(of: &Pristine, image: &CowImage, tail: u64, told: bool) -> Result<(), String> {
    let silent = !told && of.is_followed(tail, image);
    if silent { Err(format!("the log ends at {tail}, and no word of a whole record behind that")) } else { Ok(()) }
}

fn plain(of: &Pristine, image: &CowImage) -> Result<Verdict, String> {
    let (model, may) = (of.base.model, of.allowed(image));
    let fits = |shown: &Look, how: &str| {
        let latest = shown.fits(&may[0].1);
        let found = if latest.is_ok() { Some(0) } else { may.iter().position(|(_, m)| shown.fits(m).is_ok()) };
        let why = latest.err().unwrap_or_default();
        found.ok_or_else(|| format!("{how}: {why}; {} trees may be shown", may.len()))
    };
    let of_more = |m: &Mounted, which: usize| {
        let tail = (which > 0).then_some(may[which].0);
        tail.map_or(Ok(()), |tail| of_lost(of, image, tail, m.told_of_more))
    };
    let report = check(image, model)?;
    let clean = report.is_some_and(|r| r.clean);
    if let Some(mut mounted) = mount(image, model, true)? {
        let shown = look(&mut mounted.hand);
        of_more(&mounted, fits(&shown, "mounted read-only")?)?;
        let scrubbed = scrubbed(&mounted)?;
        told(&shown, clean, scrubbed)?;
        drop(mounted.hand);
        same(&mounted.medium, image)?;
    }
    let Some(mut mounted) = mount(image, model, false)? else {
        return if clean { Err("fsck calls an image clean that does not mount".into()) } else { Ok(Verdict::Refused) };
    };
    let shown = look(&mut mounted.hand);
    let which = fits(&shown, "mounted for writing")?;
    of_more(&mounted, which)?;
    if let Some(after) = worked(mounted, model, clean, true)? {
        fits(&after.without(NEW.as_bytes()), "mounted again after a file was made")?;
    }
    Ok(match shown.errors().next() {
        Some(_) => Verdict::Errors,
        None if which > 0 => Verdict::Cut,
        None => Verdict::Whole,
    })
}

/// Makes a file, unmounts, mounts again: what is shown then, if all of that could be done.
fn worked(mut mounted: Mounted, model: CrashModel, clean: bool, strict: bool) -> Result<Option<Look>, String> {
    let hand = &mut mounted.hand;
    let made = hand.put(NEW, &NEW_BYTES).map(drop);
    if made.is_ok() && hand.read(NEW).as_deref() != Ok(&NEW_BYTES[..]) {
        return Err("a new file does not hold what was written".into());
    }
    hand.direct().close_all();
    let store = hand.store().clone();
    let ended = store.reclaim_all().is_ok() && store.unmount().is_ok();
    let image = mounted.medium.image();
    drop((mounted, store));
    if !ended {
        let poisoned = "clean, and cannot be unmounted after a file was made";
        return if clean { Err(poisoned.into()) } else { Ok(None) };
    }
    let report = check(&image, model)?;
    if clean && !report.is_some_and(|r| r.clean) {
        return Err("clean, and no more so after a file was made".into());
    }
    let Some(mut again) = mount(&image, model, true)? else {
        return Err("unmounted without an error, and does not mount again".into());
    };
    // Where a bitmap was forged, a checkpoint may have come to lie where a new file's blocks are: that is EIO.
    match made.and_then(|_| again.hand.read(NEW)) {
        Ok(bytes) if bytes != NEW_BYTES => return Err("a new file holds other bytes after an unmount".into()),
        Err(_) if made.is_ok() && strict => return Err("a new file is lost over an unmount without an error".into()),
        _ => {}
    }
    Ok(Some(look(&mut again.hand)))
}

/// Whether bytes are of those that no write made.
pub fn is_marked(bytes: &[u8]) -> bool {
    bytes.windows(MARK.len()).any(|w| w == MARK)
}

fn unmarked(shown: &Look) -> Result<(), String> {
    for (path, entry) in &shown.entries {
        if entry.pieces.iter().flatten().any(|p| is_marked(p)) {
            return Err(format!("/{}: bytes that no write made, with success", String::from_utf8_lossy(path)));
        }
    }
    Ok(())
}

/// What a mount showed of a forged image: no bytes that no write made, and the names that it holds.
pub fn forged(held: Option<&Held>, shown: &Look, clean: bool) -> Result<(), String> {
    unmarked(shown)?;
    if let Some(path) = shown.leads_nowhere().filter(|_| clean) {
        let path = String::from_utf8_lossy(path);
        return Err(format!("fsck finds nothing, and /{path} is listed and leads nowhere"));
    }
    held.map_or(Ok(()), |held| held.judge(shown, clean))
}

fn sealed(of: &Base, image: &CowImage, input: &[u8], marked: bool) -> Result<Verdict, String> {
    let (model, held) = (CrashModel::Pmem, Held::of(image, of));
    let clean = check(image, model)?.is_some_and(|r| r.clean);
    let forged = |shown: &Look, how: &str| forged(held.as_ref(), shown, clean).map_err(|why| format!("{how}: {why}"));
    if let Some(mut mounted) = mount(image, model, true)? {
        let shown = look(&mut mounted.hand);
        forged(&shown, "mounted read-only")?;
        told(&shown, clean, clean && !scrubbed(&mounted)?)?;
        drop(mounted.hand);
        same(&mounted.medium, image)?;
    }
    let verdict = match mount(image, model, false)? {
        None if clean => return Err("fsck calls an image clean that does not mount".into()),
        None => Verdict::Refused,
        Some(mut mounted) => {
            let shown = look(&mut mounted.hand);
            forged(&shown, "mounted for writing")?;
            let errors = shown.errors().next().is_some();
            let after = worked(mounted, model, clean, clean)?.map(|l| l.without(NEW.as_bytes()));
            let untouched = after.as_ref().is_none_or(|after| shown.cut || after.fits(&shown).is_ok());
            if clean && !errors && !untouched {
                return Err("clean, and a new file changed what others show".into());
            }
            after.iter().try_for_each(|after| forged(after, "mounted again after a file was made"))?;
            if errors { Verdict::Errors } else { Verdict::Whole }
        }
    };
    // The fuzzer's own checks, with some work on the image.
    if !marked {
        let work: Vec<u8> = (0..12u8).flat_map(|i| [i, i * 5]).collect();
        (image::TARGET.run)(&[&[3][..], input, &[11], &work].concat());
    }
    Ok(verdict)
}
