//! `weldfs put`, `get`, `cp`: files and whole trees into, out of and inside images.

use crate::device;
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{self, each, exit_code};
use crate::place::{Place, Side, one_image};
use crate::tree::{Copy, End, Follow, Host, Image, Tally};
use crate::verbs::cat;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What all three verbs take.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct Common {
    /// Copy what symbolic links lead to, in trees too; else links in trees stay links, and only those that are named
    /// here are followed
    #[arg(short = 'L', long, conflicts_with = "no_dereference")]
    dereference: bool,
    /// Copy named symbolic links as links, too
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// Keep access and modification times
    #[arg(short = 'p', long)]
    times: bool,
    /// Print what was copied as one JSON object
    #[arg(long)]
    json: bool,
}

impl Common {
    fn follow(self) -> Follow {
        match (self.dereference, self.no_dereference) {
            (true, _) => Follow::Always,
            (_, true) => Follow::Never,
            _ => Follow::Named,
        }
    }
}

const STREAMS: &str = "'-' is standard input, or with get standard output; a file of that name is './-'.";

/// Arguments of `weldfs put`.
#[derive(clap::Args, Debug)]
#[command(after_help = STREAMS)]
pub struct PutArgs {
    /// Files and trees of the host
    #[arg(value_name = "FILE", required = true)]
    from: Vec<PathBuf>,
    /// The directory to put them in, or (one file) its name there
    #[arg(value_name = "IMAGE:/path")]
    to: Place,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `weldfs get`.
#[derive(clap::Args, Debug)]
#[command(after_help = STREAMS)]
pub struct GetArgs {
    /// Files and trees of an image
    #[arg(value_name = "IMAGE:/path", required = true)]
    from: Vec<Place>,
    /// The directory to put them in, or (one file) its name there
    #[arg(value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `weldfs cp`.
#[derive(clap::Args, Debug)]
#[command(after_help = STREAMS)]
pub struct CpArgs {
    /// Files and trees, of the host or of an image
    #[arg(value_name = "FROM", required = true)]
    from: Vec<Side>,
    /// The directory to put them in, or (one file) its name there
    #[arg(value_name = "TO")]
    to: Side,
    #[command(flatten)]
    common: Common,
}

/// Host to image.
pub fn put(args: &PutArgs) -> Outcome {
    let device = device::open(&args.to.image, device::Want::Write)?;
    let inside = Image::new(device.client(), &args.to.image);
    let done = copy(&Host::default(), &inside, false, &args.from, &args.to.path, args.common)?;
    drop(inside);
    device.finish()?;
    done.report(args.common)
}

/// Image to host.
pub fn get(args: &GetArgs) -> Outcome {
    if args.to == Path::new("-") {
        return to_stdout(args);
    }
    let image = one_image(&args.from)?;
    let device = device::open(&image, device::Want::Read)?;
    let inside = Image::new(device.client(), &image);
    let sources: Vec<PathBuf> = args.from.iter().map(|place| place.path.clone()).collect();
    let done = copy(&inside, &Host::target(&args.to), false, &sources, &args.to, args.common)?;
    drop(inside);
    device.close()?;
    done.report(args.common)
}

/// Files one after the other, as `cat` has it.
fn to_stdout(args: &GetArgs) -> Outcome {
    if args.common.json {
        return Err(Failure::usage("--json and the files cannot both go to standard output"));
    }
    each(&args.from, cat::show).map(exit_code)
}

/// Image to image, or whichever of the two above the names say.
pub fn cp(args: &CpArgs) -> Outcome {
    let inside: Vec<Place> =
        args.from.iter().filter_map(|s| if let Side::Inside(p) = s { Some(p.clone()) } else { None }).collect();
    let host: Vec<PathBuf> =
        args.from.iter().filter_map(|s| if let Side::Host(p) = s { Some(p.clone()) } else { None }).collect();
    match (&args.to, inside.is_empty(), host.is_empty()) {
        (Side::Inside(to), true, _) => put(&PutArgs { from: host, to: to.clone(), common: args.common }),
        (Side::Host(to), _, true) => get(&GetArgs { from: inside, to: to.clone(), common: args.common }),
        (Side::Inside(to), false, true) => between(&inside, to, args.common),
        (Side::Host(_), true, false) => Err(Failure::usage("neither side is of the form IMAGE:/path")),
        _ => Err(Failure::usage("the sources must all be in one image, or all on the host")),
    }
}

fn between(from: &[Place], to: &Place, common: Common) -> Outcome {
    let image = one_image(from)?;
    let sources: Vec<PathBuf> = from.iter().map(|place| place.path.clone()).collect();
    let target = device::open(&to.image, device::Want::Write)?;
    let done = if device::same(&image, &to.image) {
        let (a, b) = (Image::new(target.client(), &image), Image::new(target.client(), &to.image));
        copy(&a, &b, true, &sources, &to.path, common)?
    } else {
        let source = device::open(&image, device::Want::Read)?;
        let (a, b) = (Image::new(source.client(), &image), Image::new(target.client(), &to.image));
        let done = copy(&a, &b, false, &sources, &to.path, common)?;
        drop((a, b));
        source.close()?;
        done
    };
    target.finish()?;
    done.report(common)
}

/// What a copy did, and how long it took.
struct Done {
    tally: Tally,
    seconds: f64,
}

impl Done {
    /// Prints what is asked for; the exit code says whether anything had to be left out.
    fn report(self, common: Common) -> Outcome {
        if common.json {
            let mut facts =
                serde_json::to_value(&self.tally).map_err(std::io::Error::from).doing("describe", "the copy")?;
            facts["seconds"] = self.seconds.into();
            output::even_unread(output::json(&facts))?;
        }
        Ok(exit_code(self.tally.failed))
    }
}

fn copy(
    from: &dyn End,
    to: &dyn End,
    same: bool,
    sources: &[PathBuf],
    dest: &Path,
    common: Common,
) -> Result<Done, Failure> {
    let start = Instant::now();
    let bar = output::progress(None);
    let (follow, tally, above) = (common.follow(), Tally::default(), Vec::new());
    let mut work = Copy { from, to, same, times: common.times, follow, above, tally, bar };
    let done = work.all(sources, dest);
    work.bar.finish_and_clear();
    done?;
    Ok(Done { tally: work.tally, seconds: start.elapsed().as_secs_f64() })
}
