//! The emulated hardware of a device, which can change while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;
use weldfs_fpga::error::CardError;
use weldfs_fpga::manifest::Region;
use weldfs_locks::Mutex;

use super::config::DeviceConfig;
use super::model::{LinkModel, MediaModel};
use weldfs_session::profile::Profile;

/// Why a number of the profile, or another setting, is not changed.
#[derive(Debug)]
pub(super) enum Refused {
    Unknown,
    Range,
    Busy(String),
}

/// What a device's profile comes to.
pub(super) struct Emulated {
    /// Whether it adds anything. It never goes back: a core may have stretched time to make up for.
    on: AtomicBool,
    /// Device time per time of the host's core, in 1024ths.
    stretch: AtomicU64,
    /// The link to the host: one, whatever the number of cores.
    pub link: Mutex<LinkModel>,
    media: Option<Arc<MediaModel>>,
    card: Arc<Card>,
    /// What the card is made of where the profile says nothing.
    plain: CardConfig,
    profile: Mutex<Profile>,
    /// It cannot change: commands run on the threads that call, which wait for nothing.
    fixed: bool,
}

fn regions(profile: &Profile) -> Vec<Region> {
    profile.slots.sizes().into_iter().map(Region::from).collect()
}

/// A card with the slots of a profile, and all else as `plain` says.
fn card_of(profile: &Profile, plain: &CardConfig) -> CardConfig {
    let pace = profile.slots.pace(profile.times_slots(plain), plain.pace());
    CardConfig { slots: regions(profile), ..plain.clone() }.at(&pace)
}

/// Device time per time of the host's core, in 1024ths.
fn stretch(profile: &Profile) -> u64 {
    (1024.0 / profile.core.speed) as u64
}

impl Emulated {
    /// Of a device with so many threads; with its card.
    ///
    /// # Errors
    /// EINVAL: the card cannot be as it is said to be.
    pub fn new(config: &DeviceConfig, threads: usize) -> std::io::Result<Emulated> {
        let (mut profile, media, plain) = (config.profile.clone(), config.media.clone(), config.card.clone());
        // What is there is what reports and settings show.
        profile.slots = profile.slots.on(&plain);
        #[cfg(not(test))]
        let card = weldfs_fs::card::make(card_of(&profile, &plain))?;
        #[cfg(test)]
        let card = odd::card(card_of(&profile, &plain))?;
        let (on, inline) = (!profile.is_free(), config.inline == Some(true) && threads == 1);
        Ok(Emulated {
            on: AtomicBool::new(on),
            stretch: AtomicU64::new(stretch(&profile)),
            link: Mutex::new(LinkModel::new(&profile.link)),
            media,
            card,
            plain,
            profile: Mutex::new(profile),
            fixed: inline && !on,
        })
    }

    /// The card with the slots.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
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

    /// Changes the numbers.
    ///
    /// # Errors
    /// One would be out of range, or of a slot that is in use. Nothing has changed then.
    pub fn change(&self, change: impl FnOnce(&mut Profile)) -> Result<(), Refused> {
        let mut profile = self.profile.lock();
        let mut new = profile.clone();
        change(&mut new);
        if new.check().is_err() {
            return Err(Refused::Range);
        }
        if new == *profile {
            return Ok(());
        }
        self.change_card(&profile, &new)?;
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
        if !new.is_free() {
            self.on.store(true, Ordering::Relaxed);
        }
        *profile = new;
        Ok(())
    }

    /// Changes what of the card is another in the new profile.
    fn change_card(&self, old: &Profile, new: &Profile) -> Result<(), Refused> {
        let refused = |e: CardError| match e {
            CardError::Busy(why) => Refused::Busy(why),
            _ => Refused::Range,
        };
        if new.slots.sizes() != old.slots.sizes() {
            self.card.set_slots(&regions(new)).map_err(refused)?;
        }
        let (is, pace) = (self.card.pace(), new.slots.pace(new.times_slots(&self.plain), self.card.pace()));
        if pace != is { self.card.set_pace(pace).map_err(refused) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(super) mod odd;
