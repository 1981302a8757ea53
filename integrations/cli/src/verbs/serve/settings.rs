//! What `weldfs serve` is told, by flags or by a file: one list of settings for both.

use crate::machine;
use crate::output;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use weldfs_device::{CostModel, PolicyKind};

/// Less than this holds no cache at all.
const MEMORY_MIN: u64 = 1 << 20;

/// Every setting, each optional.
#[derive(clap::Args, Serialize, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table of settings")]
pub struct Settings {
    /// The image, made by mkfs
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<PathBuf>,
    /// Serve fresh memory of this size instead, gone at the end; needs --socket
    #[arg(long, value_name = "SIZE")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub ram: Option<Bytes>,
    /// Serve a directory of the host's own file system instead: the same commands over its calls; fused commands are
    /// not atomic over crashes, and other programs on the host are not held off
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostdir: Option<PathBuf>,
    /// Threads that call the host, with --hostdir: 1 to 256; 4 by default
    #[arg(long, value_name = "N")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub threads: Option<Threads>,
    /// Where to listen; IMAGE.sock or DIR.sock by default
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Permission bits of the socket, octal: who may write to it may connect, and is served with its own rights; 0666
    /// by default
    #[arg(long, value_name = "OCTAL")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<Mode>,
    /// Group of the socket: a name or a gid
    #[arg(long, value_name = "GROUP")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<Group>,
    /// Device threads, 1 to 256; by default what the profile says, else 1
    #[arg(long, value_name = "N")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub cores: Option<Threads>,
    /// FPGA slots, 1 to 64, all of the default size; by default what the profile says, else 3
    #[arg(long, value_name = "N")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotCount>,
    /// Memory for caches and changes not yet checkpointed, say 1G, at least 1M; by default what the profile says, else
    /// 512M
    #[arg(long, value_name = "SIZE")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Emulated hardware: a TOML file; the default adds no delay
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<PathBuf>,
    /// What calls get that do not choose: durable on pmem and memory, volatile on block and DIR by default
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Class>,
    /// Which command runs next: cfs (the default) and eevdf share the device between tenants by weight; rr and fifo
    /// are for comparison
    #[arg(long, value_name = "fifo|rr|cfs|eevdf")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyKind>,
    /// Device time after which a running command gives way to others, microseconds, 1 to 1000000; 100 by default
    #[arg(long, value_name = "US")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub quantum: Option<Micros>,
    /// What a command is charged: measured (device time, the default) or constant (a number by its kind, for
    /// comparison)
    #[arg(long, value_name = "MODEL")]
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostModel>,
    /// Tenants with weights, limits and memory: a TOML file; by default each user is a tenant, all alike
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<PathBuf>,
    /// Use a pmem image without write-back and fence instructions (for comparisons; nothing is durable)
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_flush: Option<bool>,
}

/// What calls get that do not choose.
#[derive(clap::ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Visible at once, persistent within 5 s, at fsync, or with the next durable change
    Volatile,
    /// Persistent before a call returns
    Durable,
}

/// A setting with a range of its own: how it is written, and what is wrong with what is not it.
macro_rules! setting {
    ($(#[$doc:meta])* $name:ident($inner:ty), $text:ident => $parse:expr, $value:ident => $show:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = String;

            fn from_str($text: &str) -> Result<$name, String> {
                $parse.map($name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $value = self.0;
                f.write_str(&$show)
            }
        }
    };
}

fn number<T: FromStr + PartialOrd + fmt::Display>(text: &str, from: T, to: T) -> Result<T, String> {
    match text.parse() {
        Ok(n) if n >= from && n <= to => Ok(n),
        _ => Err(format!("'{text}' is not a number from {from} to {to}")),
    }
}

setting!(
    /// A size.
    Bytes(u64), text => output::parse_bytes(text), n => n.to_string()
);
setting!(
    /// A size that holds something.
    Memory(u64), text => match output::parse_bytes(text)? {
        bytes if bytes < MEMORY_MIN => Err(format!("{bytes} bytes are too few: at least 1M")),
        bytes => Ok(bytes),
    }, n => n.to_string()
);
setting!(
    /// A number of threads.
    Threads(u16), text => number(text, 1, 256), n => n.to_string()
);
setting!(
    /// A number of FPGA slots.
    SlotCount(u16), text => number(text, 1, 64), n => n.to_string()
);
setting!(
    /// Microseconds.
    Micros(u64), text => number(text, 1, 1_000_000), n => n.to_string()
);
setting!(
    /// Permission bits. Execution has no meaning for a socket.
    Mode(u32), text => match u32::from_str_radix(text, 8) {
        Ok(bits) if bits & !0o666 == 0 => Ok(bits),
        _ => Err(format!("'{text}' is not a mode of read and write bits, octal, such as 0660")),
    }, bits => format!("{bits:04o}")
);
setting!(
    /// A group, by its number.
    Group(u32), text => match text.parse() {
        Ok(gid) => Ok(gid),
        Err(_) => match uzers::get_group_by_name(text) {
            Some(group) => Ok(group.gid()),
            None => Err(format!("there is no group '{text}'")),
        },
    }, gid => gid.to_string()
);

/// Settings that are written as text and have a parser: the same one for flags and files. A number may stand for its
/// text, except for a mode, whose digits TOML would read as decimal.
mod text {
    use super::Mode;
    use serde::{Deserializer, Serializer, de};
    use std::any::TypeId;
    use std::fmt::{self, Display};
    use std::marker::PhantomData;
    use std::str::FromStr;

    struct Text<T>(PhantomData<T>);

    impl<T: FromStr<Err: Display> + 'static> de::Visitor<'_> for Text<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text or a number")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<T>, E> {
            text.parse().map(Some).map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, n: i64) -> Result<Option<T>, E> {
            if TypeId::of::<T>() == TypeId::of::<Mode>() {
                return Err(E::custom("a mode is text of octal digits, such as \"0660\""));
            }
            self.visit_str(&n.to_string())
        }
    }

    pub fn deserialize<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err: Display> + 'static,
    {
        from.deserialize_any(Text(PhantomData))
    }

    pub fn serialize<S: Serializer, T: Display + 'static>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        let Some(value) = value else { return to.serialize_none() };
        let text = value.to_string();
        match text.parse::<i64>() {
            Ok(n) if TypeId::of::<T>() != TypeId::of::<Mode>() => to.serialize_i64(n),
            _ => to.serialize_str(&text),
        }
    }
}

impl Settings {
    /// What is to be served: one of three.
    fn sources(&self) -> Vec<&'static str> {
        let set = [("image", self.image.is_some()), ("ram", self.ram.is_some()), ("hostdir", self.hostdir.is_some())];
        set.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
    }

    /// Those set that have no meaning for what is served, and what they are for.
    fn misplaced(&self) -> Option<(&'static str, &'static str)> {
        let device = "for a device, not for a directory (hostdir)";
        let set = [
            ("threads", self.threads.is_some() && self.hostdir.is_none(), "for hostdir; a device has cores"),
            ("no-flush", self.no_flush == Some(true) && self.ram.is_some(), "for an image, not for memory (ram)"),
            ("no-flush", self.no_flush == Some(true) && self.hostdir.is_some(), device),
            ("cores", self.cores.is_some() && self.hostdir.is_some(), device),
            ("slots", self.slots.is_some() && self.hostdir.is_some(), device),
            ("memory", self.memory.is_some() && self.hostdir.is_some(), device),
            ("profile", self.profile.is_some() && self.hostdir.is_some(), device),
            ("policy", self.policy.is_some() && self.hostdir.is_some(), device),
            ("quantum", self.quantum.is_some() && self.hostdir.is_some(), device),
            ("cost", self.cost.is_some() && self.hostdir.is_some(), device),
            ("tenants", self.tenants.is_some() && self.hostdir.is_some(), device),
        ];
        set.into_iter().find(|(_, misplaced, _)| *misplaced).map(|(key, _, what)| (key, what))
    }

    /// A path that names nothing.
    fn empty(&self) -> Option<&'static str> {
        let paths = [
            ("image", &self.image),
            ("hostdir", &self.hostdir),
            ("socket", &self.socket),
            ("profile", &self.profile),
            ("tenants", &self.tenants),
        ];
        let is_empty = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.as_os_str().is_empty());
        paths.into_iter().find(|(_, path)| is_empty(path)).map(|(name, _)| name)
    }

    /// What is wrong with them, each alone and together; `key` says how a setting is called.
    pub fn check(&self, key: impl Fn(&str) -> String) -> Result<(), String> {
        if let Some(name) = self.empty() {
            return Err(format!("{} is empty", key(name)));
        }
        if let Some((asked, has)) = self.memory.zip(machine::memory_and_swap()).filter(|(asked, has)| asked.0 > *has) {
            let [asked, has] = [asked.0, has].map(output::human_bytes);
            return Err(format!("{}: {asked} is more than this machine has ({has})", key("memory")));
        }
        if let [one, other, ..] = self.sources()[..] {
            return Err(format!("{} and {} exclude each other", key(one), key(other)));
        }
        match self.misplaced() {
            // Alone it may still be joined by what it is for.
            Some(("threads", _)) if self.sources().is_empty() => Ok(()),
            Some(("threads", _)) => {
                Err(format!("{} is for {}; a device has {}", key("threads"), key("hostdir"), key("cores")))
            }
            Some((name, what)) => Err(format!("{} is {what}", key(name))),
            None => Ok(()),
        }
    }

    /// These, and for what they leave open those of a file. What to serve is one choice: if it was made here, that of
    /// the file does not count, nor does anything of the file that has no meaning for it.
    pub fn over(self, mut file: Settings) -> Settings {
        if !self.sources().is_empty() {
            (file.image, file.ram, file.hostdir) = (None, None, None);
            if self.hostdir.is_some() {
                let Settings { socket, socket_mode, socket_group, durability, threads, .. } = file;
                file = Settings { socket, socket_mode, socket_group, durability, threads, ..Settings::default() };
            } else {
                file.threads = None;
            }
            if self.ram.is_some() {
                file.no_flush = None;
            }
        }
        // Every field by name: a new setting cannot be forgotten here.
        Settings {
            image: self.image.or(file.image),
            ram: self.ram.or(file.ram),
            hostdir: self.hostdir.or(file.hostdir),
            threads: self.threads.or(file.threads),
            socket: self.socket.or(file.socket),
            socket_mode: self.socket_mode.or(file.socket_mode),
            socket_group: self.socket_group.or(file.socket_group),
            cores: self.cores.or(file.cores),
            slots: self.slots.or(file.slots),
            memory: self.memory.or(file.memory),
            profile: self.profile.or(file.profile),
            durability: self.durability.or(file.durability),
            policy: self.policy.or(file.policy),
            quantum: self.quantum.or(file.quantum),
            cost: self.cost.or(file.cost),
            tenants: self.tenants.or(file.tenants),
            no_flush: self.no_flush.or(file.no_flush),
        }
    }

    /// Paths of a file are meant as seen from the file.
    pub fn seen_from(mut self, folder: &Path) -> Settings {
        let paths = [&mut self.image, &mut self.hostdir, &mut self.socket, &mut self.profile, &mut self.tenants];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&path);
        }
        self
    }
}
