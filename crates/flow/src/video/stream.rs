//! Streams of frames: YUV4MPEG2 (y4m), or raw frames one after the other.
//!
//! The stream is fed with bytes as they come, however they are cut, and says when something is whole. A header has a
//! greatest length, and a frame that of its picture, so nothing here grows without bound. The format of y4m is that
//! of yuv4mpeg(5).

use super::format::{Picture, PixelFormat, Rate};
use crate::error::Error;

/// Greatest length of a header, in bytes.
const HEADER_BYTES_MAX: usize = 1024;
/// Greatest width and height of a frame, in pixels.
const SIDE_MAX: usize = 16384;
const MAGIC: &str = "YUV4MPEG2";
const FRAME: &str = "FRAME";

/// Part of a stream that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The header of the stream.
    Header,
    /// The header of a frame.
    FrameHeader,
    /// The pixels of a frame, of which so many bytes have come.
    Frame(usize),
}

/// A stream of frames.
#[derive(Debug)]
pub(crate) struct FrameStream {
    /// Name of the sink, for messages.
    name: String,
    expected: Expected,
    /// Bytes of the header that has come in part.
    partial: Vec<u8>,
    /// Bytes of the last whole header, with the end of its line.
    header: Vec<u8>,
    /// True if the stream and each frame have a header.
    has_headers: bool,
    picture: Option<Picture>,
    rate: Option<Rate>,
    frame: Vec<u8>,
    /// Number of whole frames so far.
    frames: u64,
}

/// Result of feeding a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All bytes were taken, and nothing is whole.
    More,
    /// The picture is known, after this number of bytes.
    Picture(usize),
    /// A frame is whole after this number of bytes: see [`FrameStream::frame`].
    Frame(usize),
}

impl FrameStream {
    /// Makes a stream with headers, as y4m files have.
    pub(crate) fn y4m(name: &str) -> FrameStream {
        FrameStream {
            name: name.into(),
            expected: Expected::Header,
            partial: Vec::new(),
            header: Vec::new(),
            has_headers: true,
            picture: None,
            rate: None,
            frame: Vec::new(),
            frames: 0,
        }
    }

    /// Makes a stream of raw frames.
    pub(crate) fn raw(name: &str, picture: Picture) -> FrameStream {
        FrameStream {
            expected: Expected::Frame(0),
            has_headers: false,
            picture: Some(picture),
            frame: vec![0; picture.frame_bytes()],
            ..FrameStream::y4m(name)
        }
    }

    /// Returns size and pixels of the frames, once they are known.
    pub(crate) fn picture(&self) -> Option<Picture> {
        self.picture
    }

    /// Returns the rate that the stream's header tells.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Returns the bytes of the last whole frame, after [`Step::Frame`].
    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Returns the last whole header, that of the stream or of a frame; empty for raw frames.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header
    }

    /// Takes bytes, up to the next thing that is whole.
    ///
    /// # Errors
    /// [`Error::Data`] if they are no stream, or one of an unknown kind.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Step, Error> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            match self.expected {
                Expected::Frame(filled) => {
                    let used = rest.len().min(self.frame.len() - filled);
                    self.frame[filled..filled + used].copy_from_slice(&rest[..used]);
                    taken += used;
                    self.expected = Expected::Frame(filled + used);
                    if filled + used == self.frame.len() {
                        self.frames += 1;
                        self.expected =
                            if self.has_headers { Expected::FrameHeader } else { Expected::Frame(0) };
                        return Ok(Step::Frame(taken));
                    }
                }
                Expected::Header | Expected::FrameHeader => {
                    let Some(used) = self.take_header(rest)? else { return Ok(Step::More) };
                    taken += used;
                    let line = String::from_utf8_lossy(&self.partial).into_owned();
                    self.header.clear();
                    self.header.append(&mut self.partial);
                    self.header.push(b'\n');
                    if self.expected == Expected::Header {
                        self.read_header(&line)?;
                        return Ok(Step::Picture(taken));
                    }
                    self.read_frame_header(&line)?;
                }
            }
        }
        Ok(Step::More)
    }

    /// Checks that the stream ends behind a frame.
    ///
    /// # Errors
    /// [`Error::Data`] if it has no frame, or ends within one.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let frames = self.frames;
        match self.expected {
            _ if frames == 0 => Err(self.wrong("the data ended before the first frame was whole")),
            Expected::Frame(1..) => Err(self.wrong(format!("the data ended within frame {}", frames + 1))),
            Expected::Frame(0) if self.has_headers => {
                Err(self.wrong(format!("the data ended within frame {}", frames + 1)))
            }
            _ if !self.partial.is_empty() => {
                Err(self.wrong(format!("the data ended within the header of frame {}", frames + 1)))
            }
            _ => Ok(()),
        }
    }

    /// Takes bytes of a header, up to its end; `None` if that has not come.
    fn take_header(&mut self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        self.partial.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        let expected = if self.expected == Expected::Header { MAGIC } else { FRAME };
        let begin = self.partial.len().min(expected.len());
        if self.partial[..begin] != expected.as_bytes()[..begin] || (end.is_some() && begin < expected.len())
        {
            return Err(self.wrong(match self.expected {
                Expected::Header => {
                    "the data is no y4m (YUV4MPEG2); of raw frames give size= and format=".into()
                }
                _ => format!("frame {} has no header: it should begin with {FRAME}", self.frames + 1),
            }));
        }
        if self.partial.len() > HEADER_BYTES_MAX {
            return Err(self.wrong(format!("a header has more than {HEADER_BYTES_MAX} bytes")));
        }
        Ok(end.map(|end| end + 1))
    }

    fn read_header(&mut self, line: &str) -> Result<(), Error> {
        let (mut width, mut height, mut format) = (None, None, Ok(PixelFormat::Yuv420));
        let mut is_full_range = false;
        for word in line.split(' ').skip(1) {
            let Some(letter) = word.chars().next() else { continue };
            let value = &word[letter.len_utf8()..];
            match letter {
                'W' => width = value.parse().ok(),
                'H' => height = value.parse().ok(),
                'F' => {
                    let rate = value.parse().map_err(|reason: String| self.wrong(reason))?;
                    self.rate = Some(rate);
                }
                'C' => format = colour_space(value),
                'X' if value == "COLORRANGE=FULL" => is_full_range = true,
                _ => {}
            }
        }
        let sides = width
            .zip(height)
            .filter(|(width, height)| (1..=SIDE_MAX).contains(width) && (1..=SIDE_MAX).contains(height));
        let (width, height) = sides.ok_or_else(|| {
            self.wrong(format!("its header has no width and height of 1 to {SIDE_MAX} (W and H): '{line}'"))
        })?;
        let format = format.map_err(|name| {
            self.wrong(format!("its pixels are {name}, and 420, 422, 444 and mono of 8 bits are known"))
        })?;
        let picture = Picture { width, height, format, is_full_range };
        self.picture = Some(picture);
        self.frame = vec![0; picture.frame_bytes()];
        self.expected = Expected::FrameHeader;
        Ok(())
    }

    fn read_frame_header(&mut self, line: &str) -> Result<(), Error> {
        match line[FRAME.len()..].chars().next() {
            None | Some(' ') => {
                self.expected = Expected::Frame(0);
                Ok(())
            }
            Some(_) => Err(self.wrong(format!("frame {} has the header '{line}'", self.frames + 1))),
        }
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::Data(format!("{}: {what}", self.name))
    }
}

/// Returns the format of a colour space of y4m, or its name if it is unknown.
fn colour_space(name: &str) -> Result<PixelFormat, String> {
    match name {
        "420" | "420jpeg" | "420mpeg2" | "420paldv" => Ok(PixelFormat::Yuv420),
        "422" => Ok(PixelFormat::Yuv422),
        "444" => Ok(PixelFormat::Yuv444),
        "mono" => Ok(PixelFormat::Gray),
        other => Err(format!("C{other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a stream in pieces of so many bytes, and returns its frames.
    fn frames(stream: &mut FrameStream, bytes: &[u8], piece: usize) -> Result<Vec<Vec<u8>>, Error> {
        let mut frames = Vec::new();
        for mut piece in bytes.chunks(piece) {
            loop {
                match stream.feed(piece)? {
                    Step::More => break,
                    Step::Picture(taken) => piece = &piece[taken..],
                    Step::Frame(taken) => {
                        frames.push(stream.frame().to_vec());
                        piece = &piece[taken..];
                    }
                }
            }
        }
        stream.finish().map(|()| frames)
    }

    fn refused(bytes: &[u8]) -> String {
        let mut one = FrameStream::y4m("x");
        let reason = frames(&mut one, bytes, 1000).unwrap_err().to_string();
        // The same whatever the pieces.
        assert_eq!(frames(&mut FrameStream::y4m("x"), bytes, 1).unwrap_err().to_string(), reason);
        reason
    }

    #[test]
    fn frames_are_the_same_however_they_are_cut() {
        let bytes = b"YUV4MPEG2 W2 H2 F30000:1001 Ip A1:1 C444 XCOLORRANGE=FULL\nFRAME\nabcdefghijklFRAME Ip\nABCDEFGHIJKL";
        for piece in 1..bytes.len() + 1 {
            let mut stream = FrameStream::y4m("x");
            let got = frames(&mut stream, bytes, piece).unwrap();
            assert_eq!(got, [b"abcdefghijkl".to_vec(), b"ABCDEFGHIJKL".to_vec()], "{piece}");
            assert_eq!(stream.header(), b"FRAME Ip\n");
            let format = PixelFormat::Yuv444;
            let expected = Picture { width: 2, height: 2, format, is_full_range: true };
            assert_eq!(stream.picture(), Some(expected));
            assert_eq!(stream.rate(), Some(Rate { frames: 30000, seconds: 1001 }));
        }
    }

    #[test]
    fn formats_are_told_apart() {
        for (word, format) in [
            ("", PixelFormat::Yuv420),
            (" C420jpeg", PixelFormat::Yuv420),
            (" C422", PixelFormat::Yuv422),
            (" Cmono", PixelFormat::Gray),
        ] {
            let mut stream = FrameStream::y4m("x");
            let header = format!("YUV4MPEG2 W2 H2{word}\n");
            assert_eq!(stream.feed(header.as_bytes()).unwrap(), Step::Picture(header.len()));
            assert_eq!(stream.picture().unwrap().format, format);
            assert_eq!(stream.rate(), None);
        }
        assert!(refused(b"YUV4MPEG2 W2 H2 C420p10\n").contains("its pixels are C420p10"));
        assert!(refused(b"YUV4MPEG2 W2 H2 C444alpha\n").contains("C444alpha"));
    }

    #[test]
    fn what_is_no_stream_is_told() {
        assert!(refused(b"RIFF....AVI ").contains("no y4m"));
        assert!(refused(b"YUV\n").contains("no y4m"));
        assert!(refused(b"YUV4MPEG2 W2\n").contains("no width and height"));
        assert!(refused(b"YUV4MPEG2 W0 H2\n").contains("no width and height"));
        assert!(refused(b"YUV4MPEG2 W99999 H2\n").contains("no width and height"));
        assert!(refused(b"YUV4MPEG2 W2 H2 F0:1\n").contains("no rate"));
        assert!(refused(b"YUV4MPEG2 W1 H1 Cmono\nFRAME\nxFRAMES\nx").contains("frame 2 has the header"));
        assert!(refused(b"YUV4MPEG2 W1 H1 Cmono\nFRAME\nxyFRAME\n").contains("frame 2 has no header"));
        let long = [b"YUV4MPEG2 ".to_vec(), vec![b'x'; HEADER_BYTES_MAX]].concat();
        assert!(refused(&long).contains("more than 1024 bytes"));
    }

    #[test]
    fn what_is_cut_off_is_told() {
        assert!(refused(b"").contains("before the first frame"));
        assert!(refused(b"YUV4MPEG2 W2 H2 Cmono\n").contains("before the first frame"));
        assert!(refused(b"YUV4MPEG2 W1 H1 Cmono\nFRAME\nxFRAME\n").contains("within frame 2"));
        assert!(refused(b"YUV4MPEG2 W2 H1 Cmono\nFRAME\nxyFRAME\nx").contains("within frame 2"));
        assert!(refused(b"YUV4MPEG2 W1 H1 Cmono\nFRAME\nxFRA").contains("header of frame 2"));
    }

    #[test]
    fn raw_frames_follow_one_another() {
        let picture = Picture { width: 2, height: 1, format: PixelFormat::Rgb, is_full_range: false };
        for piece in 1..13 {
            let got = frames(&mut FrameStream::raw("x", picture), b"abcdefghijkl", piece).unwrap();
            assert_eq!(got, [b"abcdef".to_vec(), b"ghijkl".to_vec()]);
        }
        let cut = frames(&mut FrameStream::raw("x", picture), b"abcdefg", 3).unwrap_err().to_string();
        assert!(cut.contains("within frame 2"), "{cut}");
    }
}
