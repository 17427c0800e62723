//! `damages`: damages pools at rest, opens them, reads everything, and judges the answers.

mod contents;
mod harm;
mod process;
mod subjects;

pub(crate) use contents::{CLIENT_COMMAND, ClientCommand};

use darter_cli::{Answer, Failure};
use harm::Way;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use subjects::{Kind, Outcome, Round, Subject};

/// Number of pools of each kind: each way in which its last process can end, and each number of
/// memory nodes of a file.
const VARIANTS: usize = 4;

#[derive(clap::Args)]
#[command(after_help = "\
Each round damages one file of one pool: a bit, a byte, a sector, its length, or the file itself. Then the pool \
is opened, read in every way, written to and read again. Right answers, or errors that name the damage, pass; \
a wrong answer, a panic, a hang or an error that names nothing does not.

Examples:
  darter-lab damages --rounds 1000
  darter-lab damages --rounds 100 --only group --verbose")]
pub(crate) struct DamagesCommand {
    /// Number of damages
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Random seed; the same seed damages the same places, if the files are the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Damage only pools of this kind [default: for five rounds of files, three of nodes and two of
    /// groups]
    #[arg(long, value_enum, value_name = "KIND")]
    only: Option<Kind>,
    /// End after the first wrong answer
    #[arg(long)]
    fail_fast: bool,
    /// Directory for the pools [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print each damage and its result
    #[arg(long)]
    verbose: bool,
}

/// The number of rounds with each outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Tally([u64; 3]);

impl Tally {
    fn count(&mut self, outcome: Outcome) {
        self.0[outcome as usize] += 1;
    }
}

impl DamagesCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let temporary;
        let directory = if let Some(directory) = &self.dir {
            directory
        } else {
            temporary = tempfile::tempdir().map_err(Failure::failed)?;
            &temporary.path().to_owned()
        };
        let mut out = io::stdout().lock();
        let mut subjects = BTreeMap::new();
        let (mut by_file, mut by_way) = (BTreeMap::new(), BTreeMap::new());
        let (mut done, mut wrong) = (0, 0);
        for number in 0..self.rounds {
            let mut dice = Pcg64Mcg::seed_from_u64(self.seed << 32 | number);
            let kind = self.only.unwrap_or(match number % 10 {
                0..5 => Kind::File,
                5..8 => Kind::Node,
                _ => Kind::Group,
            });
            let variant = (number / 10) as usize % VARIANTS;
            let subject = match subjects.entry((kind, variant)) {
                Entry::Occupied(made) => made.into_mut(),
                Entry::Vacant(place) => {
                    let name = format!("{kind:?}-{variant}").to_lowercase();
                    place.insert(made(kind, variant, &directory.join(name), &mut dice)?)
                }
            };
            let way = Way::ALL[(number / 3) as usize % Way::ALL.len()];
            let round = subject.round(way, &mut dice).map_err(Failure::failed)?;
            let Round { file, way, outcome, text } = round;
            by_file.entry(file.clone()).or_insert_with(Tally::default).count(outcome);
            by_way.entry(way).or_insert_with(Tally::default).count(outcome);
            done += 1;
            wrong += u64::from(outcome == Outcome::Wrong);
            if self.verbose || outcome == Outcome::Wrong {
                writeln!(out, "{number}: {outcome:?}: {file}, variant {variant}: {text}")?;
            }
            if self.fail_fast && wrong > 0 {
                break;
            }
        }
        writeln!(out, "{:<34} {:>7} {:>7} {:>7}", "damaged", "right", "named", "wrong")?;
        let mut line = |name: &str, Tally([right, named, wrong]): Tally| {
            writeln!(out, "{name:<34} {right:>7} {named:>7} {wrong:>7}")
        };
        by_file.iter().try_for_each(|(file, tally)| line(file, *tally))?;
        by_way.iter().try_for_each(|(way, tally)| line(way.name(), *tally))?;
        writeln!(out, "{done} damages, {wrong} wrong")?;
        Ok(if wrong == 0 { Answer::Done } else { Answer::No })
    }
}

/// Makes a pool in a new directory.
fn made(kind: Kind, variant: usize, directory: &Path, dice: &mut Pcg64Mcg) -> Result<Subject, Failure> {
    std::fs::create_dir_all(directory).map_err(Failure::failed)?;
    Subject::make(kind, variant, directory, dice).map_err(Failure::failed)
}
