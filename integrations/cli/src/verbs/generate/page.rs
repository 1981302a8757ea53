//! One man page: what `--help` says, then what it does not: exit status, environment, files, what to read next.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Exit status and its meaning.
type Exits = &'static [(&'static str, &'static str)];

const ORDINARY: Exits = &[
    ("0", "Everything was done."),
    ("1", "Something failed; standard error has one sentence that says what, and where."),
    ("2", "The command line makes no sense."),
];

/// Verbs whose exit status says more.
fn exits(verb: &str) -> Exits {
    match verb {
        "weldfs-fsck" => &[
            ("0", "Nothing is wrong."),
            ("1", "Something was corrected (with -y)."),
            ("4", "Something is wrong and was left so."),
            ("8", "The image could not be checked."),
            ("16", "The command line makes no sense."),
        ],
        "weldfs-scrub" => &[
            ("0", "Nothing is wrong."),
            ("4", "Damage was found."),
            ("8", "The image could not be read."),
            ("16", "The command line makes no sense."),
            ("32", "Stopped by a signal; 36 if damage had been found by then."),
        ],
        "weldfs-info" => &[
            ("0", "It was printed."),
            ("1", "It could not be read; standard error says why."),
            ("2", "The command line makes no sense."),
            ("4", "It was printed, and the log is corrupt (with --log)."),
        ],
        "weldfs-run" => &[
            ("N", "What the program ended with; 128 and the number of the signal that ended it."),
            ("1", "The device could not be started or reached, or did not end cleanly."),
            ("2", "The command line makes no sense."),
            ("126, 127", "The program cannot be run, or is not there."),
        ],
        "weldfs-crash" => &[
            ("0", "Every state recovered as promised."),
            ("1", "A state did not, or the run failed."),
            ("2", "The command line makes no sense."),
            ("130", "A signal ended the run."),
        ],
        verb if verb.starts_with("weldfs-bench") => &[
            ("0", "It was measured."),
            ("1", "Something failed, or a bound was missed."),
            ("2", "The command line makes no sense."),
            ("130", "A signal ended the run."),
        ],
        _ => ORDINARY,
    }
}

/// Environment variables and their meaning.
fn variables(verb: &str) -> Vec<(&'static str, &'static str)> {
    let mut all = vec![
        ("WELDFS_LOG", "What is logged to standard error: error, warn (the default), info, debug or trace."),
        ("WELDFS_TENANT_TOKEN", "The tenant that this process belongs to at a running device; see weldfs-tenants(1)."),
        (
            "WELDFS_DEVICE_USER",
            "The number of a user whose device is believed by its socket's path, also where any user could have put \
             that socket, as below /tmp.",
        ),
        (
            "WELDFS_WAIT",
            "Seconds to wait for a device that is starting, ending or recovering: 0 to 86400, 30 by default. Programs \
             under weldfs-run(1) wait as long.",
        ),
    ];
    if verb == "weldfs-run" {
        all.push((
            "WELDFS_PRELOAD",
            "The preload library. By default it is found near this program; a program that stands alone writes the \
             one that it carries to $XDG_CACHE_HOME/weldfs (or ~/.cache/weldfs; root: /var/cache/weldfs).",
        ));
        all.push(("WELDFS_DEBUG", "1: a line on standard error for each call that is refused as not supported."));
    }
    all
}

/// The page's name without its section: `weldfs-bench-micro`.
pub fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-")
}

/// The page.
pub fn text(command: &Command) -> Vec<u8> {
    let name = name(command);
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(concat!("WeldFS ", env!("CARGO_PKG_VERSION")))
        .manual("WeldFS");
    let mut page = Vec::new();
    let written = (|| {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if command.has_subcommands() {
            man.render_subcommands_section(&mut page)?;
        }
        rest(command, &name).to_writer(&mut page)
    })();
    written.expect("writing to memory");
    page
}

fn rest(command: &Command, name: &str) -> Roff {
    let mut roff = Roff::new();
    if let Some(notes) = command.get_after_long_help().or(command.get_after_help()) {
        // Tables and examples: as they stand.
        roff.control("SH", ["NOTES"]).control("nf", []);
        roff.text([roman(notes.to_string())]);
        roff.control("fi", []);
    }
    list(&mut roff, "EXIT STATUS", exits(name));
    list(&mut roff, "ENVIRONMENT", &variables(name));
    if name == "weldfs" || name == "weldfs-serve" {
        list(&mut roff, "FILES", &[("IMAGE.sock", "The socket of the device that serves IMAGE, unless it was named.")]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let above = name.rsplit_once('-').map_or("weldfs-run", |(above, _)| above);
    roff.text([bold(above), roman("(1), and the documents in share/doc/weldfs of the installation.")]);
    roff
}

fn list(roff: &mut Roff, heading: &str, items: &[(&str, &str)]) {
    roff.control("SH", [heading]);
    for (term, meaning) in items {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(*meaning)]);
    }
}
