//! `display:`: a sink that shows frames in a window.
//!
//! The frames of a y4m stream, or raw ones, are converted straight into the memory that the display server has mapped
//! ([`bywash_display`]). Invariant: every frame of the stream is counted as shown or as dropped, and a display that
//! dies, hangs or is closed ends the flow with an error.

use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::block_io::Output;
use crate::control::Control;
use crate::end::{OpenedStream, Showing, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use crate::video::{Clock, FORMAT_NAMES, FrameStream, Painter, Picture, PixelFormat, Rate, Step, Turn};
use bywash_display::{DisplayKind, Frame, SIDE_MAX, Surface, SurfaceOptions};
use bywash_options::{OptionRow, Row, Value, Words, among, option};
use bywash_quantity::TimeUnit;
use rustix::event::PollFlags;
use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A window as the sink of a flow.
#[derive(Clone, Debug)]
struct Display {
    /// Kind of the display; `None` for the one that the environment names.
    kind: Option<DisplayKind>,
    /// Name of the display; `None` for the one that the environment names.
    name: Option<String>,
    title: Option<String>,
    scale: Option<Scale>,
    pace: Pace,
    /// Size and pixels of raw frames; `None` for y4m.
    raw: Option<Picture>,
    /// Width and height of the screen's mode, for KMS.
    mode: Option<(usize, usize)>,
    timeout: Option<Duration>,
}

/// Size of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// A multiple of the picture's size.
    Times(usize),
    /// Width and height, in pixels.
    Size(usize, usize),
    /// As large as the screen allows without distortion, for KMS.
    Fit,
}

/// Frames a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// As the stream's header says.
    Source,
    /// As many as the display takes; none is dropped.
    Max,
    /// As many as the user says.
    Rate(Rate),
}

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row {
        name: "display",
        address: "[wayland|x11|kms]",
        sentence: "shows frames in a window: y4m of 8 bits, or raw ones with size=; without a kind, on the display that \
                   the environment names; kms: on a screen without a display server",
        options: &[
            OptionRow::new("name", Value::Text("NAME"), "the display, such as :1, the path of a Wayland socket, or /dev/dri/card0"),
            OptionRow::new("title", Value::Text("TEXT"), "title of the window").or("bywash"),
            OptionRow::new(
                "scale",
                Value::Text("N|WxH|fit"),
                "size of the window: times the picture's, in pixels, or (kms) as large as the screen allows",
            )
            .or("1"),
            OptionRow::new("mode", Value::Text("WxH"), "size of the screen's mode (kms); by default the one it prefers"),
            OptionRow::new(
                "fps",
                Value::Text("source|max|N"),
                "frames a second: as y4m says, as many as the display takes (so raw ones by default), or N, such as 30000/1001",
            )
            .or("source"),
            OptionRow::new("size", Value::Text("WxH"), "the data are raw frames of this size"),
            OptionRow::new("format", Value::Choice(FORMAT_NAMES), "pixels of raw frames").or("xrgb"),
            OptionRow::new(
                "timeout",
                Value::Duration(TimeUnit::Second),
                "time in which the display must answer and return frames",
            )
            .or("5"),
        ],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Endpoint, Error> {
    let kind = match words.address()? {
        "" => None,
        text => Some(DisplayKind::named(text).ok_or_else(|| {
            let known = DisplayKind::ALL.map(DisplayKind::name);
            words.error(format!("there is no display of the kind '{text}'{}", among(text, &known)))
        })?),
    };
    let mode = words.value("mode", size)?;
    let size = words.value("size", size)?;
    let format = words.choice("format")?.map(PixelFormat::numbered);
    if format.is_some() && size.is_none() {
        return Err(words.error("the data has a format only with size=: y4m says its own").into());
    }
    let format = format.unwrap_or(PixelFormat::Xrgb);
    let raw = size.map(|(width, height)| Picture { width, height, format, is_full_range: false });
    let pace = words.value("fps", pace)?.unwrap_or(if raw.is_some() { Pace::Max } else { Pace::Source });
    if raw.is_some() && pace == Pace::Source {
        return Err(words.error("raw frames say no rate: give fps=max, or a number").into());
    }
    let text = |text: &str| Ok::<_, String>(text.to_owned());
    let display = Display {
        kind,
        name: words.value("name", text)?,
        title: words.value("title", text)?,
        scale: words.value("scale", scale)?,
        pace,
        raw,
        mode,
        timeout: words.duration("timeout")?,
    };
    words.check_all_taken()?;
    let is_kms = display.kind == Some(DisplayKind::Kms);
    for (option, is_given) in
        [("mode", display.mode.is_some()), ("scale=fit", display.scale == Some(Scale::Fit))]
    {
        if is_given && !is_kms {
            return Err(words
                .error(format!("{option} is for a screen without a server: display:kms"))
                .into());
        }
    }
    Ok(Endpoint::new(display))
}

/// Parses WIDTHxHEIGHT.
fn size(text: &str) -> Result<(usize, usize), String> {
    let side = |text: &str| text.parse().ok().filter(|side| (1..=SIDE_MAX as usize).contains(side));
    text.split_once('x').and_then(|(width, height)| Some((side(width)?, side(height)?))).ok_or_else(|| {
        format!("'{text}' is no size: give WIDTHxHEIGHT with sides of 1 to {SIDE_MAX}, such as 640x480")
    })
}

fn scale(text: &str) -> Result<Scale, String> {
    if text == "fit" {
        return Ok(Scale::Fit);
    }
    match text.parse() {
        Ok(times @ 1..=64) => Ok(Scale::Times(times)),
        Ok(_) => Err(format!("'{text}' is no scale: give 1 to 64, WIDTHxHEIGHT, or fit")),
        Err(_) => size(text).map(|(width, height)| Scale::Size(width, height)),
    }
}

fn pace(text: &str) -> Result<Pace, String> {
    match text {
        "source" => Ok(Pace::Source),
        "max" => Ok(Pace::Max),
        number => number.parse().map(Pace::Rate),
    }
}

impl EndpointType for Display {
    fn inspect_source(&self) -> Result<End, Error> {
        Err(self.sink_only())
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        Ok(End::new(self.to_string(), Kind::Memory))
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, _: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        Err(self.sink_only())
    }

    fn open_sink(&self, context: &OpenContext<'_>, _: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        let kind = match self.kind {
            Some(kind) => kind,
            None => DisplayKind::detect().ok_or_else(|| {
                Error::Usage(format!(
                    "{}: neither WAYLAND_DISPLAY nor DISPLAY is set; start this in a session, or name a display, as in \
                     display:x11,name=:0",
                    context.name
                ))
            })?,
        };
        let showing = Showing::default();
        let stream = match self.raw {
            Some(picture) => FrameStream::raw(context.name, picture),
            None => FrameStream::y4m(context.name),
        };
        let screen = Screen {
            endpoint: self.clone(),
            kind,
            name: context.name.into(),
            stream,
            window: None,
            showing: showing.clone(),
        };
        Ok(OpenedStream::OneWay(Sink::Frames(Box::new(screen), showing)))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(Error::Usage(format!("{self} cannot be the sink of several connections at once")))
    }
}

impl Display {
    /// Returns the options of a window of this size.
    fn options(&self, width: u32, height: u32) -> SurfaceOptions {
        let mut options = SurfaceOptions::new(width, height);
        if let Some(title) = &self.title {
            options = options.title(title);
        }
        if let Some(name) = &self.name {
            options = options.display(name);
        }
        if let Some((width, height)) = self.mode {
            // Sides of at most `SIDE_MAX`.
            options = options.mode(width as u32, height as u32);
        }
        if let Some(limit) = self.timeout {
            options = options.timeout(limit);
        }
        options
    }

    fn sink_only(&self) -> Error {
        Error::Usage(format!("{self} shows frames and has none to give; name it as the sink"))
    }
}

impl fmt::Display for Display {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("display:")?;
        if let Some(kind) = self.kind {
            write!(out, "{kind}")?;
        }
        option(out, "name", self.name.as_deref())?;
        option(out, "title", self.title.as_deref())?;
        match self.scale {
            Some(Scale::Times(times)) => option(out, "scale", Some(times))?,
            Some(Scale::Size(width, height)) => write!(out, ",scale={width}x{height}")?,
            Some(Scale::Fit) => out.write_str(",scale=fit")?,
            None => {}
        }
        match self.pace {
            Pace::Source => {}
            Pace::Max if self.raw.is_some() => {}
            Pace::Max => out.write_str(",fps=max")?,
            Pace::Rate(rate) => option(out, "fps", Some(rate))?,
        }
        if let Some(Picture { width, height, format, .. }) = self.raw {
            write!(out, ",size={width}x{height},format={}", format.name())?;
        }
        if let Some((width, height)) = self.mode {
            write!(out, ",mode={width}x{height}")?;
        }
        option(out, "timeout", self.timeout.map(|timeout| timeout.as_secs_f64()))
    }
}

/// Returns the greatest size of a picture on a screen that keeps its shape.
fn fit(picture: &Picture, (across, down): (u32, u32)) -> (usize, usize) {
    let (across, down) = (across as usize, down as usize);
    if picture.width * down > across * picture.height {
        (across, (picture.height * across / picture.width).max(1))
    } else {
        ((picture.width * down / picture.height).max(1), down)
    }
}

fn failed(name: &str, error: bywash_display::Error) -> Error {
    Error::io(format!("show frames on {name}"), std::io::Error::other(error))
}

/// Sink that shows frames.
struct Screen {
    endpoint: Display,
    kind: DisplayKind,
    name: String,
    stream: FrameStream,
    /// The window; `None` until the picture is known.
    window: Option<Window>,
    showing: Showing,
}

/// A window, with what its frames need.
struct Window {
    surface: Surface,
    painter: Painter,
    clock: Clock,
    name: String,
}

impl Screen {
    /// Opens the window, once the picture is known.
    fn open(&mut self) -> Result<&mut Window, Error> {
        if self.window.is_none() {
            self.window = Some(self.make_window()?);
        }
        match &mut self.window {
            Some(window) => Ok(window),
            None => unreachable!("the window was just made"),
        }
    }

    fn make_window(&self) -> Result<Window, Error> {
        let Some(picture) = self.stream.picture() else {
            unreachable!("a window is opened once the picture is known")
        };
        let rate = match self.endpoint.pace {
            Pace::Max => None,
            Pace::Rate(rate) => Some(rate),
            Pace::Source => Some(self.stream.rate().ok_or_else(|| {
                Error::Data(format!("{}: its header says no rate (F); give fps=max, or a number", self.name))
            })?),
        };
        let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX);
        let options = |width, height| self.endpoint.options(side(width), side(height));
        let (width, height) = match self.endpoint.scale {
            None => (picture.width, picture.height),
            Some(Scale::Times(times)) => (times * picture.width, times * picture.height),
            Some(Scale::Size(width, height)) => (width, height),
            Some(Scale::Fit) => {
                let screen = Surface::screen_size(self.kind, &options(picture.width, picture.height));
                let screen = screen.map_err(|error| failed(&self.name, error))?;
                screen.map_or((picture.width, picture.height), |screen| fit(&picture, screen))
            }
        };
        let options = options(width, height);
        let surface = Surface::open(self.kind, &options).map_err(|error| failed(&self.name, error))?;
        self.showing.update(|shown| {
            (shown.display, shown.width, shown.height) = (self.kind.to_string(), side(width), side(height));
        });
        let painter = Painter::new(picture, width, height);
        Ok(Window { surface, painter, clock: Clock::new(rate), name: self.name.clone() })
    }

    /// Shows the frame that is whole, or drops it.
    fn show(&mut self, control: &Control) -> Result<(), Error> {
        self.open()?;
        let Screen { window: Some(window), stream, showing, .. } = self else { return Ok(()) };
        let turn = window.clock.turn(Instant::now());
        let frame = match turn {
            Turn::Drop => None,
            Turn::Now => window.frame(None, control)?,
            Turn::At(begin, _, end) => {
                window.wait_until(begin, control)?;
                window.frame(Some(end), control)?
            }
        };
        window.clock.note(frame.is_some());
        let Some(mut frame) = frame else {
            window.events()?;
            showing.update(|shown| shown.frames_dropped += 1);
            return Ok(());
        };
        window.painter.paint(stream.frame(), |y, row| {
            frame.write_pixels(0, y as u32, row.iter().copied());
        });
        let is_late = matches!(turn, Turn::At(_, late, _) if Instant::now() >= late);
        window.surface.present(frame, &[]).map_err(|error| failed(&window.name, error))?;
        showing.update(|shown| {
            shown.frames_shown += 1;
            shown.frames_late += u64::from(is_late);
        });
        Ok(())
    }
}

impl Window {
    /// Handles the display's events.
    fn events(&mut self) -> Result<(), Error> {
        self.surface.dispatch().map_err(|error| failed(&self.name, error))
    }

    /// Waits until the time has come, and handles the display's events meanwhile.
    fn wait_until(&mut self, until: Instant, control: &Control) -> Result<(), Error> {
        while Instant::now() < until {
            control.wait(self.surface.as_fd(), PollFlags::IN, Some(until))?;
            self.events()?;
        }
        Ok(())
    }

    /// Waits for a frame to paint; `None` if there is none by the time `until`.
    fn frame(&mut self, until: Option<Instant>, control: &Control) -> Result<Option<Frame>, Error> {
        loop {
            if let Some(frame) = self.surface.try_frame().map_err(|error| failed(&self.name, error))? {
                return Ok(Some(frame));
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Ok(None);
            }
            let soon = now + LOOK_INTERVAL;
            let soon = until.map_or(soon, |until| until.min(soon));
            control.wait(self.surface.as_fd(), PollFlags::IN, Some(soon))?;
        }
    }
}

/// Greatest time between two looks at a display from which nothing comes.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl Output for Screen {
    fn put(&mut self, mut block: &[u8], control: &Control) -> Result<(), Error> {
        loop {
            match self.stream.feed(block)? {
                Step::More => return Ok(()),
                Step::Picture(taken) => {
                    block = &block[taken..];
                    self.open()?;
                }
                Step::Frame(taken) => {
                    block = &block[taken..];
                    self.show(control)?;
                }
            }
        }
    }

    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        self.stream.finish()?;
        let Some(window) = &mut self.window else { return Ok(()) };
        if let Some(end) = window.clock.end() {
            window.wait_until(end, control)?;
        }
        window.surface.finish().map_err(|error| failed(&window.name, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_fits_and_keeps_its_shape() {
        let fits = |width, height, screen| {
            fit(&Picture { width, height, format: PixelFormat::Xrgb, is_full_range: false }, screen)
        };
        assert_eq!(fits(176, 144, (1920, 1080)), (1320, 1080));
        assert_eq!(fits(1920, 800, (1280, 1024)), (1280, 533));
        assert_eq!(fits(640, 480, (640, 480)), (640, 480));
        assert_eq!(fits(16384, 1, (320, 200)), (320, 1));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, reason) in [
            ("display:quartz", "wayland, x11, kms"),
            ("display:x11,format=rgb", "only with size="),
            ("display:x11,size=2x2,fps=source", "say no rate"),
            ("display:x11,size=0x2", "is no size"),
            ("display:x11,size=2", "is no size"),
            ("display:x11,scale=0", "is no scale"),
            ("display:x11,scale=1x", "is no size"),
            ("display:x11,scale=fit", "display:kms"),
            ("display:,mode=640x480", "display:kms"),
            ("display:x11,fps=0", "no rate of frames"),
            ("display:x11,format=p010,size=2x2", "p010"),
        ] {
            let refused = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        for text in ["display:kms,scale=fit,mode=640x480", "display:kms,name=/dev/dri/card1,fps=max"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let source = "display:x11".parse::<Endpoint>().unwrap().kind.inspect_source().unwrap_err();
        assert!(source.to_string().contains("name it as the sink"), "{source}");
    }
}
