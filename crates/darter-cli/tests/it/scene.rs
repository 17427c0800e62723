//! A directory with a pool in it, and the program run on it.

use crate::PROGRAM;
use assert_cmd::Command;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A directory with a pool in it.
pub(crate) struct Scene {
    directory: TempDir,
}

/// The output of a command.
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn out(self, out: &str) -> Self {
        assert_eq!(self.out, out, "err: {}", self.err);
        self
    }

    #[track_caller]
    pub(crate) fn err(self, part: &str) -> Self {
        assert!(self.err.contains(part), "`{part}` is not in: {}", self.err);
        self
    }
}

pub(crate) fn program() -> Command {
    let mut program = Command::new(PROGRAM);
    program.env_remove("DARTER_POOL");
    program
}

pub(crate) fn finish(program: &mut Command) -> Answer {
    let output = program.output().unwrap();
    Answer {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Scene {
    /// Returns an empty pool.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Returns an empty pool, created with these options.
    pub(crate) fn with(options: &[&str]) -> Self {
        let scene = Self { directory: tempfile::tempdir().unwrap() };
        let pool = format!("{}?size=32M&nodes=2", scene.url());
        scene.run(&[&["put", "x", "y", "--pool", &pool], options].concat()).code(0);
        scene.run(&["del", "x"]).code(0);
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.path("pool").display())
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut program = program();
        program.env("DARTER_POOL", self.url()).args(words);
        program
    }

    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        finish(&mut self.command(words))
    }

    /// Loads a file with this text.
    pub(crate) fn load(&self, name: &str, text: impl AsRef<[u8]>, options: &[&str]) -> Answer {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        self.run(&[&["load", path.to_str().unwrap()], options].concat())
    }
}
