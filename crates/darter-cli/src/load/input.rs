//! Input of pairs: a file or standard input, plain or compressed by gzip or zstd.
//!
//! Compression is detected by the first bytes, so standard input needs no name. Several members or
//! frames one after another are read as one file, as `gzip` and `zstd` do.

use crate::failure::Failure;
use flate2::bufread::MultiGzDecoder;
use indicatif::style::TemplateError;
use indicatif::{ProgressBar, ProgressStyle};
use ruzstd::decoding::StreamingDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;

/// Number of bytes read at a time.
const BUFFER_BYTES: usize = 1 << 18;
/// The first bytes of a gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The first bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The first bytes of a skippable zstd frame; the first byte can be up to `0x5f`.
const ZSTD_SKIPPABLE: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];

/// The bytes of a file, decompressed.
pub(super) type Input = Box<dyn BufRead + Send>;

/// Returns the name of a file without the ending for its compression.
pub(super) fn plain_name(path: &Path) -> &Path {
    match extension(path).as_str() {
        "gz" | "zst" => path.file_stem().map_or(path, Path::new),
        _ => path,
    }
}

/// Returns the ending of a file's name, in lower case.
pub(super) fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

/// Opens a file (`-` is standard input) with a progress bar for its length. The bar is hidden
/// unless stderr is a terminal.
pub(super) fn open(path: &Path) -> Result<(Input, ProgressBar), Failure> {
    let (file, bar): (Box<dyn Read + Send>, ProgressBar) = if path.as_os_str() == "-" {
        let style = ProgressStyle::with_template("{spinner} {bytes} read, {binary_bytes_per_sec}  {msg}");
        (Box::new(io::stdin()), ProgressBar::new_spinner().with_style(style_of(style)))
    } else {
        let refused = |what: String| Failure::usage(format_args!("{}: {what}", path.display()));
        let file = File::open(path).map_err(|error| refused(error.to_string()))?;
        let metadata = file.metadata().map_err(|error| refused(error.to_string()))?;
        if metadata.is_dir() {
            return Err(refused("it is a directory; name a file in it".to_owned()));
        }
        let style = ProgressStyle::with_template(
            "{wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left  {msg}",
        );
        (Box::new(file), ProgressBar::new(metadata.len()).with_style(style_of(style)))
    };
    let file = BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(file));
    Ok((decompressed(file, path)?, bar))
}

/// Returns the style of a template; an invalid template only affects the appearance.
fn style_of(style: Result<ProgressStyle, TemplateError>) -> ProgressStyle {
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Decompresses a file with this name.
pub(super) fn decompressed(mut file: impl BufRead + Send + 'static, path: &Path) -> Result<Input, Failure> {
    let (head, file) = head(&mut file).map(|head| (head, file)).map_err(super::unreadable)?;
    let is_named = |ending: &str| extension(path) == ending;
    let whole = Cursor::new(head.clone()).chain(file);
    if head.starts_with(&GZIP_MAGIC) {
        let decoder = MultiGzDecoder::new(whole);
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
    } else if head.starts_with(&ZSTD_MAGIC) || is_skippable(&head) {
        let decoder = ZstdFrames::Between(Box::new(whole));
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
    } else if is_named("gz") || is_named("zst") {
        let what = if is_named("gz") { "gzip" } else { "zstd" };
        Err(Failure::usage(format_args!(
            "{}: not compressed by {what}, although its name says so",
            path.display()
        )))
    } else {
        Ok(Box::new(whole))
    }
}

/// Returns the first four bytes, or all if there are fewer.
fn head(file: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(ZSTD_MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn is_skippable(head: &[u8]) -> bool {
    head.len() == 4 && head[0] & 0xf0 == ZSTD_SKIPPABLE[0] && head[1..] == ZSTD_SKIPPABLE[1..]
}

type Source = Box<dyn Read + Send>;
type Frame = Box<StreamingDecoder<Chain<Cursor<Vec<u8>>, Source>, ruzstd::decoding::FrameDecoder>>;

/// Reads a sequence of zstd frames.
enum ZstdFrames {
    Between(Source),
    Within(Frame),
    /// After the last frame, or after an error.
    Ended,
}

impl ZstdFrames {
    /// Returns the next frame that is not skippable; `None` at the end of the file.
    fn next(mut source: Source) -> io::Result<Option<Frame>> {
        loop {
            let mut magic = Vec::new();
            source.by_ref().take(4).read_to_end(&mut magic)?;
            if magic.is_empty() {
                return Ok(None);
            }
            if !is_skippable(&magic) {
                let whole = Cursor::new(magic).chain(source);
                return Ok(Some(Box::new(StreamingDecoder::new(whole).map_err(io::Error::other)?)));
            }
            let mut bytes = [0; 4];
            source.read_exact(&mut bytes)?;
            let bytes = u64::from(u32::from_le_bytes(bytes));
            if io::copy(&mut source.by_ref().take(bytes), &mut io::sink())? < bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Read for ZstdFrames {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(self, Self::Ended) {
                Self::Ended => return Ok(0),
                Self::Between(source) => {
                    let Some(frame) = Self::next(source)? else { return Ok(0) };
                    *self = Self::Within(frame);
                }
                Self::Within(mut frame) => {
                    let count = frame.read(into)?;
                    if count > 0 {
                        *self = Self::Within(frame);
                        return Ok(count);
                    }
                    let (_, source) = frame.into_inner().into_inner();
                    *self = Self::Between(source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        decompressed(Cursor::new(bytes), Path::new("-")).unwrap().read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn several_members_and_frames_are_one_file() {
        let skipped = [&[0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        for bytes in [
            [gzip(b"one\n"), gzip(b"two\n")].concat(),
            [zstd(b"one\n"), skipped.clone(), zstd(b"two\n")].concat(),
            [skipped, zstd(b"one\ntwo\n")].concat(),
            b"one\ntwo\n".to_vec(),
        ] {
            assert_eq!(read(bytes).unwrap(), b"one\ntwo\n");
        }
        for short in [&b""[..], b"a", b"a,b"] {
            assert_eq!(read(short.to_vec()).unwrap(), short);
        }
    }

    #[test]
    fn truncated_or_corrupt_input_is_an_error() {
        let text: Vec<u8> =
            (0..100_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_be_bytes()).collect();
        for whole in [gzip(&text), zstd(&text)] {
            for bytes in [5, whole.len() / 2, whole.len() - 1] {
                assert!(read(whole[..bytes].to_vec()).is_err(), "{bytes} of {}", whole.len());
            }
        }
        assert!(read([zstd(b"one\n"), b"more".to_vec()].concat()).is_err());
    }

    #[test]
    fn a_name_that_is_not_true_is_a_usage_error() {
        for name in ["a.csv.gz", "a.csv.zst"] {
            let outcome = decompressed(Cursor::new(b"key,value\n".to_vec()), Path::new(name));
            assert!(matches!(outcome, Err(Failure::Usage(why)) if why.contains(name)));
        }
        assert_eq!(plain_name(Path::new("/data/a.csv.gz")), Path::new("a.csv"));
    }
}
