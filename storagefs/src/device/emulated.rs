//! The emulated hardware of a device, which can change while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::core::DeviceConfig;
use super::model::{LinkModel, MediaModel};
use super::profile::Profile;

/// What a device's profile comes to.
pub(super) struct Emulated {
    /// Whether it adds anything. It never goes back: a core may have stretched time to make up for.
    on: AtomicBool,
    /// Device time per time of the host's core, in 1024ths.
    stretch: AtomicU64,
    /// The link to the host: one, whatever the number of cores.
    pub link: Mutex<LinkModel>,
    media: Option<Arc<MediaModel>>,
    profile: Mutex<Profile>,
    /// It cannot change: commands run on the threads that call, which wait for nothing.
    fixed: bool,
}

/// Device time per time of the host's core, in 1024ths.
fn stretch(profile: &Profile) -> u64 {
    (1024.0 / profile.core.speed) as u64
}

impl Emulated {
    /// Of a device with so many threads.
    pub fn new(config: &DeviceConfig, threads: usize) -> Emulated {
        let (profile, media) = (&config.profile, config.media.clone());
        let (on, inline) = (!profile.is_free(), config.inline == Some(true) && threads == 1);
        Emulated {
            on: AtomicBool::new(on),
            stretch: AtomicU64::new(stretch(profile)),
            link: Mutex::new(LinkModel::new(&profile.link)),
            media,
            profile: Mutex::new(profile.clone()),
            fixed: inline && !on,
        }
    }

    /// Whether it adds anything.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Whether commands run on the threads that call.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Whether it has a medium of its own.
    pub fn has_media(&self) -> bool {
        self.media.is_some()
    }

    /// Device time per time of the host's core, in 1024ths.
    #[inline]
    pub fn stretch(&self) -> u64 {
        self.stretch.load(Ordering::Relaxed)
    }

    /// The numbers as they are now.
    pub fn profile(&self) -> Profile {
        self.profile.lock().clone()
    }

    /// Changes the numbers, unless they would be out of range: false.
    pub fn change(&self, change: impl FnOnce(&mut Profile)) -> bool {
        let mut profile = self.profile.lock();
        let mut new = profile.clone();
        change(&mut new);
        if new.check().is_err() {
            return false;
        }
        if new == *profile {
            return true;
        }
        // What reports name is no longer the file's.
        const TUNED: &str = "+tuned";
        if !new.name.ends_with(TUNED) {
            new.name += TUNED;
        }
        self.link.lock().set(&new.link);
        if let Some(media) = &self.media {
            media.set(&new.media);
        }
        self.stretch.store(stretch(&new), Ordering::Relaxed);
        self.on.store(true, Ordering::Relaxed);
        *profile = new;
        true
    }
}
