//! `completions` and `man`: what shells and `man` are told of the program, made from its arguments.

use crate::failure::Failure;
use crate::{Answer, Arguments};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter completions bash > ~/.local/share/bash-completion/completions/darter
  darter completions zsh > ~/.zfunc/_darter
  darter completions fish > ~/.config/fish/completions/darter.fish")]
pub(crate) struct CompletionsCommand {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        // The generator takes a failing writer for a mistake of its own.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "darter", &mut script);
        let mut out = std::io::stdout().lock();
        out.write_all(&script)?;
        out.flush()?;
        Ok(Answer::Done)
    }
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter man load | man -l -
  darter man --dir ~/.local/share/man/man1")]
pub(crate) struct ManCommand {
    /// The command to describe, such as `load` or `pool create`; without one, the program
    #[arg(conflicts_with = "dir")]
    command: Vec<String>,
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl ManCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let mut program = Arguments::command();
        if let Some(dir) = &self.dir {
            let cannot = |error| Failure::usage(format_args!("{}: {error}", dir.display()));
            std::fs::create_dir_all(dir).map_err(cannot)?;
            clap_mangen::generate_to(program, dir).map_err(cannot)?;
            return Ok(Answer::Done);
        }
        program.build();
        let mut command = &program;
        for word in &self.command {
            let found = command.find_subcommand(word).filter(|found| !found.is_hide_set());
            command = found.ok_or_else(|| {
                Failure::usage(format_args!(
                    "there is no command `{word}`; `darter --help` lists those there are"
                ))
            })?;
        }
        let mut out = std::io::stdout().lock();
        Man::new(command.clone()).render(&mut out)?;
        out.flush()?;
        Ok(Answer::Done)
    }
}
