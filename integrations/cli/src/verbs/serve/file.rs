//! `weldfs.toml`: the settings of `weldfs serve` in a file.

use super::settings::Settings;
use crate::failure::{Failure, reason};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Names the file; empty: none.
pub const VARIABLE: &str = "WELDFS_CONFIG";

/// The whole file. Other verbs may get tables of their own.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    serve: Settings,
}

/// A file that was read.
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub settings: Settings,
}

/// The file that counts, and what names it: the one on the command line, else the one of the environment, else the
/// user's, else the system's, where they exist.
fn place(named: Option<&Path>) -> Option<(PathBuf, &'static str)> {
    if let Some(path) = named {
        return Some((path.to_owned(), " (--config)"));
    }
    if let Some(path) = std::env::var_os(VARIABLE) {
        return Some((PathBuf::from(path), " (WELDFS_CONFIG)")).filter(|(path, _)| !path.as_os_str().is_empty());
    }
    let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    let places = own.into_iter().chain([PathBuf::from("/etc")]).map(|folder| folder.join("weldfs/weldfs.toml"));
    places.into_iter().find(|path| path.exists()).map(|path| (path, ""))
}

/// Reads it.
pub fn load(named: Option<&Path>) -> Result<Option<File>, Failure> {
    let Some((path, from)) = place(named) else { return Ok(None) };
    let wrong = |what: String| Failure::usage(format!("{}{from}: {what}", path.display()));
    let bytes = std::fs::read(&path).map_err(|e| wrong(format!("the settings cannot be read: {}", reason(&e))))?;
    let text = text(&bytes).map_err(wrong)?;
    let settings = parse(text).map_err(wrong)?;
    let lines = lines(text);
    let key = |key: &str| match lines.iter().find(|(name, _)| name == key) {
        Some((_, line)) => format!("serve.{key} (line {line})"),
        None => format!("serve.{key}"),
    };
    settings.check(key).map_err(wrong)?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    Ok(Some(File { path, settings: settings.seen_from(&folder) }))
}

/// The number of the line that a byte is in.
fn line_of(text: &[u8], at: usize) -> usize {
    text[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

/// TOML is UTF-8.
fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|e| {
        let line = line_of(bytes, e.valid_up_to());
        let whole = bytes.split(|b| *b == b'\n').nth(line - 1).unwrap_or_default();
        let key = whole.split(|b| *b == b'=').next().filter(|key| key.len() < whole.len());
        let key = key.and_then(|key| std::str::from_utf8(key).ok()).map(|key| format!("{}: ", key.trim()));
        format!("line {line}: {}not UTF-8", key.unwrap_or_default())
    })
}

/// The keys of `[serve]`, each with its line.
fn lines(text: &str) -> Vec<(String, usize)> {
    let Ok(whole) = toml::de::DeTable::parse(text) else { return Vec::new() };
    let serve = whole.get_ref().iter().find(|(name, _)| name.get_ref() == "serve");
    let keys = serve.and_then(|(_, value)| value.get_ref().as_table()).into_iter().flat_map(|table| table.keys());
    keys.map(|key| (key.get_ref().to_string(), line_of(text.as_bytes(), key.span().start))).collect()
}

/// An error names the line and the key.
fn parse(text: &str) -> Result<Settings, String> {
    let said = |e: &toml::de::Error| {
        let line = e.span().map(|span| line_of(text.as_bytes(), span.start));
        let mut what = e.message().trim().replace('\n', ", ");
        // The one message of the grammar that is about a key, and does not name it.
        if let Some(key) = e.span().and_then(|span| text.get(span)).filter(|_| what == "duplicate key") {
            what = format!("{key}: given twice");
        }
        (line.map_or_else(String::new, |line| format!("line {line}: ")), what)
    };
    let parsed = toml::de::Deserializer::parse(text).map_err(|e| {
        let (line, what) = said(&e);
        format!("{line}{what}")
    })?;
    let content: Content = serde_path_to_error::deserialize(parsed).map_err(|e| {
        let (line, what) = said(e.inner());
        format!("{line}{}: {what}", e.path())
    })?;
    Ok(content.serve)
}

/// The settings as such a file.
pub fn print(settings: &Settings) -> Result<String, Failure> {
    let table = std::collections::BTreeMap::from([("serve", settings)]);
    toml::to_string(&table).map_err(|e| Failure::new(format!("a setting cannot be written as TOML: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::serve::settings::{Class, Mode, Threads};
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Flags {
        #[command(flatten)]
        settings: Settings,
    }

    fn flags(text: &str) -> Settings {
        Flags::try_parse_from(["serve"].into_iter().chain(text.split_whitespace())).expect("flags").settings
    }

    #[test]
    fn whatever_a_flag_says_a_file_says_too() {
        use clap::CommandFactory;
        let all = "[serve]\nimage = 'i'\nram = '64M'\nhostdir = 'd'\nthreads = 2\nsocket = 's'\nsocket-mode = '0660'\n\
            socket-group = 0\ncores = 3\nslots = 2\nmemory = '1G'\nprofile = 'p'\ndurability = 'volatile'\n\
            policy = 'eevdf'\nquantum = 50\ncost = 'constant'\ntenants = 't'\nno-flush = true\n";
        let parsed = parse(all).expect("all keys");
        let command = Flags::command();
        for arg in command.get_arguments().filter(|arg| arg.get_id() != "help") {
            let key = arg.get_id().as_str().replace('_', "-");
            assert!(all.contains(&format!("\n{key} = ")), "{key} cannot be said in a file");
            assert!(arg.get_long().is_none_or(|long| long == key), "{key}: flag and key have two names");
        }
        assert_eq!(command.get_arguments().filter(|arg| arg.get_id() != "help").count(), all.lines().count() - 1);
        // What is printed is such a file again.
        let printed = print(&parsed).expect("TOML");
        assert_eq!(print(&parse(&printed).expect("its own words")).expect("TOML"), printed);
        assert!(printed.contains("socket-mode = \"0660\"") && printed.contains("cores = 3"), "{printed}");
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named_with_line_and_key() {
        let cases = [
            ("[serve]\ncorse = 2", "line 2", "corse"),
            ("[serve]\nimage = 'i'\ncores = 0", "line 3", "serve.cores: '0' is not a number from 1 to 256"),
            ("[serve]\ncores = 'many'", "line 2", "serve.cores"),
            ("[serve]\nmemory = '12K'", "line 2", "serve.memory: 12288 bytes are too few"),
            ("[serve]\nsocket-mode = 660", "line 2", "serve.socket-mode: a mode is text of octal digits"),
            ("[serve]\nsocket-mode = '0777'", "line 2", "serve.socket-mode"),
            ("[serve]\nsocket-group = 'no such group'", "line 2", "there is no group 'no such group'"),
            ("[serve]\npolicy = 'fair'", "line 2", "serve.policy"),
            ("[serve]\nno-flush = 'yes'", "line 2", "serve.no-flush"),
            ("[serve]\ndurability = 'eternal'", "line 2", "serve.durability"),
            ("[server]\ncores = 2", "line 1", "server"),
            ("[serve\ncores = 2", "line 1", ""),
            ("[serve]\ncores = 2\ncores = 3", "line 3", "cores: given twice"),
            ("[serve]\n[serve]", "line 2", "serve"),
            ("serve = 3", "line 1", "serve: invalid type: integer `3`, expected a table of settings"),
        ];
        for (text, line, what) in cases {
            let said = parse(text).expect_err(text);
            assert!(said.contains(line) && said.contains(what) && !said.contains('\n'), "{text}: {said}");
        }
    }

    #[test]
    fn flags_win_and_the_choice_of_what_to_serve_is_one() {
        let file =
            parse("[serve]\nimage = 'f.img'\nsocket = 'f.sock'\ncores = 4\nsocket-mode = '0600'\nno-flush = true")
                .expect("a file");
        let both = flags("--cores 2").over(file.clone());
        assert_eq!((both.cores, both.socket_mode), (Some(Threads(2)), Some(Mode(0o600))));
        assert_eq!((both.image.as_deref(), both.no_flush), (Some(Path::new("f.img")), Some(true)));
        assert_eq!(flags("--no-flush=false").over(file.clone()).no_flush, Some(false));
        // Another image, memory, a directory: the file's is dropped, and what has no meaning for the new one.
        let image = flags("b.img").over(file.clone());
        assert_eq!((image.image.as_deref(), image.cores), (Some(Path::new("b.img")), Some(Threads(4))));
        let ram = flags("--ram 64M").over(file.clone());
        assert_eq!((ram.image.as_deref(), ram.no_flush), (None, None));
        ram.check(str::to_owned).expect("sound");
        let dir = flags("--hostdir d --durability durable").over(file);
        assert_eq!((dir.image.as_deref(), dir.cores, dir.durability), (None, None, Some(Class::Durable)));
        assert_eq!((dir.socket.as_deref(), dir.socket_mode), (Some(Path::new("f.sock")), Some(Mode(0o600))));
        dir.check(str::to_owned).expect("sound");
    }

    #[test]
    fn settings_that_exclude_each_other_are_refused() {
        for (text, what) in [
            ("a.img --ram 64M", "--image and --ram exclude"),
            ("--hostdir d --cores 2", "--cores is for a device"),
            ("a.img --threads 2", "--threads is for --hostdir; a device has --cores"),
            ("--ram 64M --no-flush", "--no-flush is for an image"),
        ] {
            let said = flags(text).check(|key| format!("--{key}")).expect_err(text);
            assert!(said.contains(what), "{text}: {said}");
        }
        assert_eq!(flags("--threads 2").check(str::to_owned), Ok(()), "the file may say hostdir");
    }

    #[test]
    fn paths_of_a_file_are_seen_from_it() {
        let settings = parse("[serve]\nimage = 'a.img'\nsocket = '/run/s'\ntenants = '../t.toml'").expect("a file");
        let seen = settings.seen_from(Path::new("/etc/weldfs"));
        let text = |path: &Option<PathBuf>| path.as_ref().expect("set").display().to_string();
        assert_eq!(text(&seen.image), "/etc/weldfs/a.img");
        assert_eq!((text(&seen.socket), text(&seen.tenants)), ("/run/s".into(), "/etc/weldfs/../t.toml".into()));
    }
}
