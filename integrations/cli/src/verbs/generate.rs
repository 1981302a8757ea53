//! `weldfs generate`: man pages and shell completions, made of the same definitions as `--help`. Hidden: packagers and
//! `install.sh` call it.

mod page;

use crate::failure::{Doing, Outcome};
use crate::{Cli, output};
use clap::CommandFactory;
use std::path::{Path, PathBuf};

/// Arguments of `weldfs generate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Write a man page for the program and one for each verb
    Man {
        /// Where to, made if it is not there
        dir: PathBuf,
    },
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Writes pages, or prints completions.
pub fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Man { dir } => man(dir)?,
        What::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut visible(), "weldfs", &mut text);
            output::facts(|out| out.write_all(&text))?;
        }
    }
    Ok(0)
}

/// The command line as it is parsed, every verb with its full name; but for `weldfs help VERB`, which says what the
/// pages say.
fn built() -> clap::Command {
    let mut command = without_help(Cli::command());
    command.build();
    command
}

fn without_help(command: clap::Command) -> clap::Command {
    let names: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let command = command.disable_help_subcommand(true);
    names.into_iter().fold(command, |command, verb| command.mut_subcommand(verb, without_help))
}

/// The program with the verbs that `--help` lists: hidden ones are not offered.
fn visible() -> clap::Command {
    let whole = without_help(Cli::command());
    let shown = whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let program = clap::Command::new("weldfs").version(crate::VERSION).disable_help_subcommand(true);
    program.args(whole.get_arguments()).subcommands(shown)
}

fn man(dir: &Path) -> Result<(), crate::failure::Failure> {
    std::fs::create_dir_all(dir).doing("make the folder", dir)?;
    for (name, text) in pages(&built()) {
        let path = dir.join(name);
        std::fs::write(&path, text).doing("write", &path)?;
    }
    Ok(())
}

/// File name and text of every page of this command and of what is below it.
fn pages(command: &clap::Command) -> Vec<(String, Vec<u8>)> {
    let below = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut all = vec![(format!("{}.1", page::name(command)), page::text(command))];
    all.extend(below.flat_map(pages));
    all
}

#[cfg(test)]
mod tests;
