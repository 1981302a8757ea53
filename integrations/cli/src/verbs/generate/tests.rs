//! Every verb has a page and is completed; hidden verbs have and are neither.

use super::*;
use clap_complete::Shell;
use std::collections::BTreeMap;

fn all_pages() -> BTreeMap<String, String> {
    let text = |(name, text)| (name, String::from_utf8(text).expect("UTF-8"));
    pages(&built()).into_iter().map(text).collect()
}

/// A command with its verbs, and theirs.
fn shown(command: &clap::Command) -> Vec<clap::Command> {
    let below = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    std::iter::once(command.clone()).chain(below.flat_map(shown)).collect()
}

#[test]
fn each_verb_has_a_page_with_each_of_its_options() {
    let (pages, commands) = (all_pages(), shown(&built()));
    assert_eq!(pages.len(), commands.len(), "{:?}", pages.keys());
    assert!(pages.len() > 25, "{:?}", pages.keys());
    for command in commands {
        let name = page::name(&command);
        let page = &pages[&format!("{name}.1")];
        // As roff writes hyphens and apostrophes.
        let plain = page.replace("\\-", "-").replace("\\*(Aq", "'");
        for part in ["NAME", "SYNOPSIS", "DESCRIPTION", "\"EXIT STATUS\"", "ENVIRONMENT", "\"SEE ALSO\""] {
            assert!(plain.contains(&format!(".SH {part}")), "{name}: no {part}");
        }
        for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
            if let Some(long) = argument.get_long() {
                assert!(plain.contains(&format!("--{long}")), "{name}: no --{long}");
            }
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let first = help.split([' ', '\n', '-', '\'', '.']).next().unwrap_or_default();
            assert!(plain.contains(first), "{name}: nothing about {:?}", argument.get_id());
        }
        let about = command.get_about().expect("a description").to_string();
        assert!(plain.contains(about.lines().next().expect("a line")), "{name}: not {about:?}");
    }
}

#[test]
fn pages_say_what_help_does_not() {
    let pages = all_pages();
    assert!(pages["weldfs-fsck.1"].contains("\\fB16\\fR"), "fsck's own exit status");
    assert!(!pages["weldfs-ls.1"].contains("\\fB16\\fR"));
    assert!(pages["weldfs-exec.1"].contains(".SH NOTES"), "the statements");
    assert!(pages["weldfs-run.1"].contains("WELDFS_PRELOAD"));
    assert!(pages["weldfs.1"].contains(concat!("WeldFS ", env!("CARGO_PKG_VERSION"))), "the version");
    assert!(!pages.keys().any(|name| name.contains("generate") || name.contains("help")));
}

#[test]
fn each_verb_is_completed_in_each_shell_and_hidden_ones_are_not() {
    /// How a shell's script offers a verb.
    type Offer = fn(&str) -> String;
    let shells: [(Shell, Offer); 3] = [
        (Shell::Bash, |verb| format!("weldfs__subcmd__{verb})")),
        (Shell::Zsh, |verb| format!("'{verb}:")),
        (Shell::Fish, |verb| format!("-a \"{verb}\"")),
    ];
    for (shell, offer) in shells {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut visible(), "weldfs", &mut text);
        let text = String::from_utf8(text).expect("UTF-8");
        let mut verbs = 0;
        for verb in built().get_subcommands() {
            let offered = text.contains(&offer(verb.get_name()));
            assert_eq!(offered, !verb.is_hide_set(), "{shell}: {}", verb.get_name());
            verbs += 1;
        }
        assert!(verbs > 20, "{verbs}");
    }
}
