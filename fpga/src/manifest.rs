//! What a kernel package says of itself: the file `kernel.toml` in its folder.
//!
//! The file may come from any user, so it is parsed strictly (an unknown key is an error) and every value is checked
//! before it is used. Paths in it are relative to the package and may not leave it.

use crate::chain::STAGES_MAX;
use crate::flit::{CYCLES_PER_FLIT_MAX, CYCLES_PER_FLIT_MIN};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

/// Bytes that a manifest may have.
pub(crate) const MANIFEST_BYTES_MAX: usize = 64 << 10;
/// Parameter words that a kernel may take at most.
pub(crate) const PARAMS_MAX: u32 = 4096;

/// What is wrong with a package.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// It is no TOML, lacks a key, has one that is not known, or one of another type.
    #[error("kernel.toml: {0}")]
    Syntax(String),
    /// A value is out of its range.
    #[error("kernel.toml: {key}: {why}")]
    Value {
        /// The key, with the tables that it is in.
        key: &'static str,
        /// What its value must be.
        why: String,
    },
    /// A path leaves the package's folder.
    #[error("kernel.toml: {key}: {path} leaves the package")]
    Outside {
        /// The key.
        key: &'static str,
        /// What it says.
        path: String,
    },
    /// The package has no back-end, or not that one.
    #[error("{name} has no back-end {kind}")]
    NoBackend {
        /// The kernel.
        name: String,
        /// What was asked for.
        kind: String,
    },
    /// The card has the kernel without the folder that its library is in.
    #[error("its library is in a folder that is not loaded (weldfs kernel load)")]
    NoFolder {
        /// The kernel.
        name: String,
        /// The back-end.
        kind: &'static str,
    },
    /// A file of the package cannot be read.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        why: String,
    },
    /// A file is no shared object that can be loaded here.
    #[error("{path} cannot be loaded: {why}")]
    Object {
        /// The file.
        path: String,
        /// What the loader says.
        why: String,
    },
    /// The shared object lacks a function of the interface.
    #[error("{path} has no symbol {symbol}")]
    Symbol {
        /// The shared object.
        path: String,
        /// The function.
        symbol: String,
    },
    /// The shared object has another version of the interface.
    #[error("{path} has version {found} of the interface, not {expected}")]
    Abi {
        /// The shared object.
        path: String,
        /// Its version.
        found: u32,
        /// What this program loads.
        expected: u32,
    },
    /// A chain cannot be made of its stages.
    #[error("{name}: {why}")]
    Chain {
        /// The chain.
        name: String,
        /// Why.
        why: String,
    },
    /// The card has the name, or the id: of the same package or of another one. A sentence.
    #[error("{0}")]
    Taken(String),
}

/// 128 bits that name a kernel for ever, whatever it is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KernelId(pub u128);

impl std::fmt::Display for KernelId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for KernelId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// What a kernel takes of the chip, or a slot has of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Look-up tables.
    pub lut: u32,
    /// Flip-flops.
    pub ff: u32,
    /// Block RAMs of 36 Kibit.
    pub bram: u32,
    /// Multipliers.
    pub dsp: u32,
}

impl Region {
    /// Adds what another kernel takes.
    pub(crate) fn add(&mut self, of: &Region) {
        self.lut = self.lut.saturating_add(of.lut);
        self.ff = self.ff.saturating_add(of.ff);
        self.bram = self.bram.saturating_add(of.bram);
        self.dsp = self.dsp.saturating_add(of.dsp);
    }

    /// Whether a kernel of size `of` fits in.
    pub fn holds(&self, of: &Region) -> bool {
        self.lut >= of.lut && self.ff >= of.ff && self.bram >= of.bram && self.dsp >= of.dsp
    }
}

/// How many parameter words a kernel takes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamRange {
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
    /// What they mean, one sentence.
    #[serde(default)]
    pub about: String,
}

/// What a kernel has beside its streams.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Bytes of the card's memory that it uses.
    #[serde(default)]
    pub dram_bytes: u64,
    /// Names of its debug ports, from port 0.
    #[serde(default)]
    pub peek: Vec<String>,
}

/// Which implementation of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Software: a built-in, or a shared object.
    Model,
    /// Verilated RTL: a shared object.
    Rtl,
    /// HLS C++ compiled for this machine: a shared object.
    Hls,
    /// A card's image (xclbin), through XRT in a helper process.
    Xrt,
}

impl Kind {
    /// All, the one that is used where none is asked for first.
    pub const ALL: [Kind; 4] = [Kind::Model, Kind::Rtl, Kind::Hls, Kind::Xrt];

    /// Its name in a manifest.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Model => "model",
            Kind::Rtl => "rtl",
            Kind::Hls => "hls",
            Kind::Xrt => "xrt",
        }
    }

    /// The one of a name.
    pub fn find(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// A stage of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageOf {
    /// A kernel that the card knows, `NAME` or `NAME:BACKEND`; no chain.
    pub kernel: String,
    /// Its parameters; where there are none, the session gives them.
    pub params: Option<Vec<u32>>,
}

/// `[backend.model]`: one of the three.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelBackend {
    /// The name of a kernel that is built in.
    pub builtin: Option<String>,
    /// A shared object.
    pub library: Option<PathBuf>,
    /// Kernels one behind the other.
    pub chain: Option<Vec<StageOf>>,
}

/// `[backend.rtl]`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RtlBackend {
    /// The top module.
    pub top: String,
    /// Its files.
    pub sources: Vec<PathBuf>,
    /// The shared object that the build makes of them.
    pub library: PathBuf,
}

/// `[backend.hls]`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HlsBackend {
    /// Its files.
    pub sources: Vec<PathBuf>,
    /// The shared object that the build makes of them.
    pub library: PathBuf,
}

/// `[backend.xrt]`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XrtBackend {
    /// The bitstream.
    pub xclbin: PathBuf,
}

/// `[backend]`: at least one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backends {
    /// Software.
    pub model: Option<ModelBackend>,
    /// Verilated RTL.
    pub rtl: Option<RtlBackend>,
    /// HLS C++.
    pub hls: Option<HlsBackend>,
    /// A card.
    pub xrt: Option<XrtBackend>,
}

impl Backends {
    /// Whether there is one of that kind.
    pub fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Model => self.model.is_some(),
            Kind::Rtl => self.rtl.is_some(),
            Kind::Hls => self.hls.is_some(),
            Kind::Xrt => self.xrt.is_some(),
        }
    }

    /// Which there are, the one that is used first where none is asked for.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::ALL.into_iter().filter(|k| self.has(*k))
    }

    /// The stages of the kernel, where it is a chain.
    pub fn chain(&self) -> &[StageOf] {
        self.model.as_ref().and_then(|m| m.chain.as_deref()).unwrap_or_default()
    }

    /// The shared object of a kind, relative to the package.
    pub fn library(&self, kind: Kind) -> Option<&Path> {
        match kind {
            Kind::Model => self.model.as_ref()?.library.as_deref(),
            Kind::Rtl => Some(&self.rtl.as_ref()?.library),
            Kind::Hls => Some(&self.hls.as_ref()?.library),
            Kind::Xrt => None,
        }
    }
}

/// A checked `kernel.toml`.
#[derive(Clone, PartialEq, Debug)]
pub struct Manifest {
    /// 1 to 31 of `a-z`, `0-9` and `-`, the first a letter or digit.
    pub name: String,
    /// Never reused.
    pub id: KernelId,
    /// Three numbers with dots.
    pub version: String,
    /// An SPDX expression.
    pub licence: String,
    /// One sentence.
    pub about: String,
    /// Clock that it is built for, MHz, 1 to 2000.
    pub clock_mhz: u32,
    /// Cycles that a flit of input takes, 1/64 to 4096.
    pub cycles_per_flit: f64,
    /// What it takes of the chip: at least one look-up table.
    pub region: Region,
    /// How many parameters it takes.
    pub params: ParamRange,
    /// What it has beside its streams.
    pub ports: Ports,
    /// Its implementations.
    pub backend: Backends,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    id: String,
    version: String,
    licence: String,
    about: String,
    clock_mhz: u32,
    cycles_per_flit: f64,
    region: Region,
    #[serde(default)]
    params: ParamRange,
    #[serde(default)]
    ports: Ports,
    backend: Backends,
}

fn value(key: &'static str, why: &str) -> PackageError {
    PackageError::Value { key, why: why.into() }
}

/// Whether this can be a kernel's name.
pub(crate) fn name_is_good(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=31).contains(&name.len()) && plain(name.as_bytes()[0]) && name.bytes().all(|b| plain(b) || b == b'-')
}

fn version_is_good(version: &str) -> bool {
    let number = |part: &str| (1..=5).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    version.split('.').count() == 3 && version.split('.').all(number)
}

fn text_is_good(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.chars().all(shows_as_itself)
}

/// Whether a character shows as itself, and leaves those around it where they are: no control character, none that
/// ends a line or turns the direction of writing, none that does not show (Unicode's Cc, Zl, Zp, and of Cf those that
/// stand in no word of a sentence).
pub(crate) fn shows_as_itself(c: char) -> bool {
    let hidden = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !hidden
}

/// A path that stays inside of the package's folder. Links are looked at when the file is opened.
fn inside(key: &'static str, path: &Path) -> Result<(), PackageError> {
    let normal = path.components().all(|c| matches!(c, Component::Normal(_)));
    let shown = path.display().to_string();
    match normal && !shown.is_empty() && !shown.contains('\0') {
        true => Ok(()),
        false => Err(PackageError::Outside { key, path: shown }),
    }
}

fn check_chain(stages: &[StageOf]) -> Result<(), PackageError> {
    let key = "backend.model.chain";
    if !(2..=STAGES_MAX).contains(&stages.len()) {
        return Err(value(key, &format!("2 to {STAGES_MAX} stages")));
    }
    let good = |s: &StageOf| match s.kernel.split_once(':') {
        Some((name, kind)) => name_is_good(name) && Kind::find(kind).is_some(),
        None => name_is_good(&s.kernel),
    };
    if !stages.iter().all(good) {
        return Err(value(key, "each stage has kernel = NAME, or NAME:BACKEND"));
    }
    match stages.iter().filter_map(|s| s.params.as_ref()).all(|p| p.len() <= PARAMS_MAX as usize) {
        true => Ok(()),
        false => Err(value(key, "params of at most 4096 words")),
    }
}

/// What is wrong with TOML, in one line that names the line.
fn said(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().trim().replace('\n', ", ");
    let before = error.span().and_then(|span| text.get(..span.start));
    before.map_or_else(|| what.clone(), |b| format!("line {}: {what}", b.matches('\n').count() + 1))
}

impl Manifest {
    /// Parses and checks the text of a `kernel.toml`.
    pub fn parse(text: &str) -> Result<Manifest, PackageError> {
        if text.len() > MANIFEST_BYTES_MAX {
            return Err(PackageError::Syntax(format!("{} bytes, at most {MANIFEST_BYTES_MAX}", text.len())));
        }
        let raw: Raw = toml::from_str(text).map_err(|e| PackageError::Syntax(said(text, &e)))?;
        let id = match raw.id.len() == 32 && raw.id.bytes().all(|b| b.is_ascii_hexdigit()) {
            true => u128::from_str_radix(&raw.id, 16).unwrap_or(0),
            false => 0,
        };
        let manifest = Manifest {
            name: raw.name,
            id: KernelId(id),
            version: raw.version,
            licence: raw.licence,
            about: raw.about,
            clock_mhz: raw.clock_mhz,
            cycles_per_flit: raw.cycles_per_flit,
            region: raw.region,
            params: raw.params,
            ports: raw.ports,
            backend: raw.backend,
        };
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), PackageError> {
        let rules: [(bool, &'static str, &str); 11] = [
            (name_is_good(&self.name), "name", "1 to 31 of a-z, 0-9 and -, beginning with a letter or digit"),
            (self.id.0 != 0, "id", "32 hexadecimal digits, not all 0"),
            (version_is_good(&self.version), "version", "three numbers of at most five digits, with dots between"),
            (text_is_good(&self.licence, 100), "licence", "an SPDX expression of at most 100 bytes"),
            (text_is_good(&self.about, 300), "about", "one sentence of at most 300 bytes"),
            ((1..=2000).contains(&self.clock_mhz), "clock_mhz", "1 to 2000"),
            (
                (CYCLES_PER_FLIT_MIN..=CYCLES_PER_FLIT_MAX as f64).contains(&self.cycles_per_flit),
                "cycles_per_flit",
                "1/64 (0.015625) to 4096",
            ),
            (self.region.lut > 0, "region.lut", "at least 1"),
            (
                self.params.min <= self.params.max && self.params.max <= PARAMS_MAX,
                "params",
                "min at most max, max at most 4096",
            ),
            (
                self.params.about.is_empty() || text_is_good(&self.params.about, 300),
                "params.about",
                "one sentence of at most 300 bytes",
            ),
            (self.ports.peek.iter().all(|p| name_is_good(p)), "ports.peek", "names of a-z, 0-9 and -"),
        ];
        if let Some((_, key, why)) = rules.into_iter().find(|(good, ..)| !good) {
            return Err(value(key, why));
        }
        self.check_backends()
    }

    fn check_backends(&self) -> Result<(), PackageError> {
        let Backends { model, rtl, hls, xrt } = &self.backend;
        if self.backend.kinds().next().is_none() {
            return Err(PackageError::NoBackend { name: self.name.clone(), kind: "at all".into() });
        }
        if let Some(model) = model {
            match (&model.builtin, &model.library, &model.chain) {
                (Some(name), None, None) if name_is_good(name) => {}
                (None, Some(path), None) => inside("backend.model.library", path)?,
                (None, None, Some(stages)) => check_chain(stages)?,
                _ => {
                    return Err(value(
                        "backend.model",
                        "one of builtin = NAME, library = FILE and chain = [STAGE, ...]",
                    ));
                }
            }
        }
        if let Some(rtl) = rtl {
            inside("backend.rtl.library", &rtl.library)?;
        }
        if let Some(hls) = hls {
            inside("backend.hls.library", &hls.library)?;
        }
        if let Some(xrt) = xrt {
            inside("backend.xrt.xclbin", &xrt.xclbin)?;
        }
        Ok(())
    }
}
