//! Kernels and sessions on a card, whatever interface its driver has.
//!
//! A [`Card`] has memory, programs, and one queue that carries out commands in their order. Each program is a pass that
//! reads some buffers and writes one. A driver supplies the passes in its own language; everything else is the same for all
//! of them:
//!
//! - `session`: buffers, commands and order of blocks
//! - `fir`, `fft`, `shader`: kernels, which turn a block into commands
//! - `scene`: steps of image formation, for rows or columns of a scene
//!
//! ```text
//!   caller fills      card copies       passes           card copies       caller reads
//!   Upload buffer --> Device buffer --> Device buffer --> Device buffer --> Download buffer
//! ```
//!
//! A card whose memory is the host's runs the passes on the Upload and Download buffers themselves.

pub(crate) mod fft;
pub(crate) mod fir;
pub(crate) mod scene;
pub(crate) mod session;
pub(crate) mod shader;

use crate::device::{Session, SessionOptions};
use crate::error::Error;
use crate::kernel::Kernel;
use fft::FftKernel;
use fir::FirKernel;
use session::Layout;
use std::sync::Arc;
use std::time::Duration;

/// Begins the work of a kernel that all cards have, whose parameters and options were checked.
///
/// # Errors
/// [`Error::Unsupported`] for other kernels, and for units that do not fit the buffers of the card; those of the card.
pub(crate) fn session<C: Card>(
    card: &Arc<C>,
    kernel: &Kernel,
    options: &SessionOptions,
) -> Result<Session, Error> {
    let fitting = |layout: Layout| {
        let (bytes, limit) = (layout.unit_bytes.max(layout.output_bytes), card.limits().buffer_bytes);
        match bytes > limit {
            true => Err(unsupported(
                card.name(),
                kernel,
                &format!("a unit has {bytes} bytes, and its buffers {limit} at most"),
            )),
            false => Ok(layout),
        }
    };
    match kernel {
        Kernel::Fir(fir) => {
            let layout = fitting(fir::layout(fir))?;
            session::start(card, layout, options, |_| FirKernel::new(&**card, fir))
        }
        Kernel::Fft(fft) => {
            let layout = fitting(fft::layout(fft))?;
            session::start(card, layout, options, |bytes| FftKernel::new(&**card, fft, bytes))
        }
        Kernel::Sha256 => Err(unsupported(
            card.name(),
            kernel,
            "each block depends on the one before, so it would compute with one of its threads",
        )),
        Kernel::Sar(sar) => scene::session(card, sar, options),
        Kernel::Library(_) => Err(unsupported(card.name(), kernel, "the library is code of the processor")),
        Kernel::Shader(_) => Err(Error::Unsupported {
            device: card.name().into(),
            kernel: kernel.name(),
            reason: "shaders are for Vulkan: use device=gpu".into(),
        }),
    }
}

fn unsupported(device: &str, kernel: &Kernel, reason: &str) -> Error {
    Error::Unsupported {
        device: device.into(),
        kernel: kernel.name(),
        reason: format!("{reason}: use device=cpu"),
    }
}

/// Invocations of a pass that run together, unless its program says something else.
pub(crate) const GROUP: u32 = 64;

/// Use of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Memory of the card alone.
    Device,
    /// Small memory of the card whose contents are the same for all invocations.
    Uniform,
    /// Memory that the host fills and the card reads.
    Upload,
    /// Memory that the card fills and the host reads.
    Download,
}

/// Use of a buffer by a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    Read,
    Write,
    Uniform,
}

/// Program of a card: one function of a source, and the buffers that it gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) source: Source<'a>,
    /// Name of the function.
    pub(crate) entry: &'a str,
    pub(crate) bindings: &'a [Binding],
    /// Number of parameters of 32 bits.
    pub(crate) parameters: usize,
    /// Invocations that run together.
    pub(crate) group: u32,
}

/// Source of a program: passes of this crate, in the language of the card, or text of the user.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Filter.
    Fir,
    /// Passes of Fourier transforms.
    Fft,
    /// Migration correction of radar images.
    Sar,
    /// Text of the user.
    Text(&'a str),
}

/// Sizes of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Greatest size of a buffer that a pass can use, in bytes.
    pub(crate) buffer_bytes: usize,
    /// Greatest number of groups of a pass in one dimension.
    pub(crate) groups: u32,
    /// True if passes can use Upload and Download buffers: the card's memory is the host's.
    pub(crate) shares_memory: bool,
}

/// Card, or the part of it that one process uses.
///
/// The methods can fail with [`Error::Lost`] and, if they need memory, with [`Error::Memory`].
pub(crate) trait Card: Send + Sync + 'static {
    type Buffer: Send + Sync;
    type Program: Send + Sync;
    /// Commands that are collected to be submitted together.
    type Commands: Send;
    /// Mark behind commands that were submitted.
    type Fence: Send;

    /// Returns the name of the device, as in `device=`.
    fn name(&self) -> &str;

    fn limits(&self) -> Limits;

    /// Returns the bytes of memory that can be allocated at present, as far as that is known.
    fn available_bytes(&self) -> Option<u64>;

    /// Allocates zeroed memory; the size is a multiple of 4. The host may use it until it is submitted.
    fn allocate(&self, bytes: usize, access: Access) -> Result<Self::Buffer, Error>;

    /// Compiles a program.
    fn program(&self, pass: &Pass<'_>) -> Result<Self::Program, Error>;

    /// Writes the beginning of a Device or Uniform buffer, before all commands that are submitted later.
    fn write(&self, buffer: &Self::Buffer, bytes: &[u8]) -> Result<(), Error>;

    /// Begins a list of commands.
    fn commands(&self) -> Result<Self::Commands, Error>;

    /// Adds a copy from an offset in one buffer to an offset in another one, in multiples of 4 bytes.
    fn copy(
        &self,
        commands: &mut Self::Commands,
        from: (&Self::Buffer, usize),
        to: (&Self::Buffer, usize),
        bytes: usize,
    ) -> Result<(), Error>;

    /// Adds a pass with at least so many invocations; those beyond do nothing. The buffers are those of the program's bindings.
    fn launch(
        &self,
        commands: &mut Self::Commands,
        program: &Self::Program,
        buffers: &[&Self::Buffer],
        parameters: &[u32],
        invocations: usize,
    ) -> Result<(), Error>;

    /// Gives commands to the card. It has the buffers in `lent`, which are all Upload and Download buffers that the commands
    /// use, until the fence is passed.
    fn submit(&self, commands: Self::Commands, lent: &mut [&mut Self::Buffer]) -> Result<Self::Fence, Error>;

    /// Waits until the card has passed a fence, and returns whether it has.
    fn wait(&self, fence: &mut Self::Fence, limit: Duration) -> Result<bool, Error>;

    /// Lets the host use a buffer again that the card had. [`Card::wait`] has returned true.
    fn take_back(&self, buffer: &mut Self::Buffer) -> Result<(), Error>;

    /// Returns the contents of an Upload or Download buffer; nothing while the card has it.
    fn bytes<'a>(&self, buffer: &'a Self::Buffer) -> &'a [u8];

    /// Returns the contents of an Upload buffer, to be changed; nothing while the card has it.
    fn bytes_mut<'a>(&self, buffer: &'a mut Self::Buffer) -> &'a mut [u8];
}
