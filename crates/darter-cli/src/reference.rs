//! `completions` and `man`: completion scripts and manual pages, generated from the program's
//! arguments.

use crate::failure::{Answer, Failure};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use darter_fabric::files::{Access, write_output};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter completions bash > ~/.local/share/bash-completion/completions/darter
  darter completions zsh > ~/.zfunc/_darter
  darter completions fish > ~/.config/fish/completions/darter.fish")]
pub struct CompletionsCommand {
    /// Shell to generate a script for
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsCommand {
    pub fn run(&self, mut program: Command) -> Result<Answer, Failure> {
        let name = program.get_name().to_owned();
        // The generator panics if the writer fails.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, name, &mut script);
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
pub struct ManCommand {
    /// Command to describe, for example `load` or `pool create`; by default the program itself
    #[arg(conflicts_with = "dir")]
    command: Vec<String>,
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl ManCommand {
    pub fn run(&self, mut program: Command) -> Result<Answer, Failure> {
        if let Some(dir) = &self.dir {
            let cannot = |error| Failure::of_output(dir, &error);
            std::fs::create_dir_all(dir).map_err(cannot)?;
            let mut program = program.disable_help_subcommand(true);
            program.build();
            write_pages(&program, dir).map_err(cannot)?;
            return Ok(Answer::Done);
        }
        program.build();
        let mut command = &program;
        for word in &self.command {
            let found = command.find_subcommand(word).filter(|found| !found.is_hide_set());
            command = found.ok_or_else(|| {
                Failure::usage(format_args!(
                    "unknown command `{word}`; `{} --help` lists the commands",
                    program.get_name()
                ))
            })?;
        }
        let mut out = std::io::stdout().lock();
        Man::new(command.clone()).render(&mut out)?;
        out.flush()?;
        Ok(Answer::Done)
    }
}

/// Writes the pages of a command and of its subcommands.
fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, dir)?;
    }
    let (page, mut text) = (Man::new(command.clone()), Vec::new());
    page.render(&mut text)?;
    write_output(&dir.join(page.get_filename()), Access::Umask, &text)
}
