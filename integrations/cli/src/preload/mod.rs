//! The preload library that `weldfs run` hands to programs: found near this program, or the copy that this program
//! carries (`carried`), put where the dynamic linker can read it.

mod carried;

use crate::failure::{Doing, Failure};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::TempDir;

/// The file that LD_PRELOAD names.
const LIBRARY: &str = "libweldfs_preload.so";

/// A library that programs can be started with for as long as this lives.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    /// Holds the file, or a link to it, where no lasting place would do.
    _folder: Option<TempDir>,
}

impl Library {
    /// Where WELDFS_PRELOAD says, else near this program, else what this program carries.
    pub fn find() -> Result<Library, Failure> {
        if let Some(named) = std::env::var_os("WELDFS_PRELOAD").filter(|n| !n.is_empty()) {
            let path = PathBuf::from(named);
            path.metadata().doing("preload what WELDFS_PRELOAD names,", &path)?;
            return Library::at(path);
        }
        let me = std::env::current_exe().doing("find", "this program's own file")?;
        match near(me.parent().unwrap_or(Path::new("/"))) {
            Some(path) => Library::at(path.canonicalize().doing("find", &path)?),
            None => match carried::bytes() {
                Some(bytes) => Library::place(bytes, &carried::places()),
                None => Err(Failure::new(format!(
                    "{LIBRARY} is not near {}: build the whole project, or name the file in WELDFS_PRELOAD",
                    me.display()
                ))),
            },
        }
    }

    /// For LD_PRELOAD.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file that is there. The dynamic linker would take its name apart at a space or a colon, warn, and start the
    /// program without it: such a name gets a link that has neither.
    fn at(path: PathBuf) -> Result<Library, Failure> {
        if is_plain(&path) {
            return Ok(Library { path, _folder: None });
        }
        let folder = folder()?;
        let link = folder.path().join(LIBRARY);
        std::os::unix::fs::symlink(&path, &link).doing("make a link to the library in", folder.path())?;
        Ok(Library { path: link, _folder: Some(folder) })
    }

    /// Writes the carried library to the first of `places` that will have it; else for this run only.
    fn place(bytes: &[u8], places: &[PathBuf]) -> Result<Library, Failure> {
        for place in places.iter().filter(|place| is_plain(place)) {
            match carried::put(bytes, place) {
                Ok(path) => return Ok(Library { path, _folder: None }),
                Err(e) => tracing::debug!("the preload library cannot be kept in {}: {e}", place.display()),
            }
        }
        let folder = folder()?;
        let path = carried::put(bytes, folder.path()).doing("write the preload library to", folder.path())?;
        Ok(Library { path, _folder: Some(folder) })
    }
}

/// A folder of this run, whose files any user may read who knows their names.
fn folder() -> Result<TempDir, Failure> {
    let folder = tempfile::tempdir().doing("make a folder in", std::env::temp_dir())?;
    let open = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(folder.path(), open).doing("open up", folder.path())?;
    if is_plain(folder.path()) {
        Ok(folder)
    } else {
        Err(Failure::new(format!("no library can be preloaded from {}: set TMPDIR", folder.path().display())))
    }
}

/// Whether ld.so takes the name as it stands: it splits LD_PRELOAD at spaces and colons, and expands `$`.
fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| b" :$".contains(b))
}

/// Near the program's folder: cargo leaves the library in `deps`, and may leave an older one beside the program (the
/// newest counts); an installation has it in `lib/weldfs`.
fn near(dir: &Path) -> Option<PathBuf> {
    let places = ["deps", ".", "..", "../lib", "../lib/weldfs"];
    let found = places.iter().map(|place| dir.join(place).join(LIBRARY)).filter_map(|path| {
        let meta = path.metadata().ok().filter(|meta| meta.is_file() && meta.len() > 0)?;
        Some((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), path))
    });
    found.max_by_key(|(changed, _)| *changed).map(|(_, path)| path)
}

#[cfg(test)]
mod tests;
