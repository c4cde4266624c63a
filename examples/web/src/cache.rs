//! The cache: properties of files, and their contents in containers.
//!
//! A file's contents are cached in parts of equal length, of which the last one is shorter. Small files are one part.
//!
//! No response mixes two versions of a file. Each part belongs to a version ([`Version`]): the file must have had it before
//! and after the part was read, else the part is thrown away. A version that is not settled yet is served, but neither
//! it nor its contents are kept. A change through a mapping of the file is noticed when the file system changes the
//! file's times, which may be later.
//!
//! The lock is held to look something up, to insert and to evict, never while a file is opened or read.

use crate::clock::Clock;
use crate::counters::Counters;
use bywash_container::Container;
use bywash_example_http::{Chunk, FileHead, Folder, Found, Memory, Version};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Failure to read a file's contents.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file has another version than the one that was to be read.
    #[error("the file changed while it was read")]
    Changed,
    /// All containers of the cache are being sent.
    #[error("all of the cache is being sent to clients; a larger cache (--cache) serves more at a time")]
    NoMemory,
    /// The kernel cannot open or read the file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The arena gives no containers.
    #[error("{0}")]
    Arena(#[from] bywash_container::Error),
}

/// File in one version, with its number and its name.
#[derive(Debug)]
pub struct File {
    id: u64,
    name: Arc<str>,
    /// Slot of the file's first part among the cached parts, if it is one of them: small files are found by it without a
    /// second search.
    first_slot: AtomicUsize,
    /// Its version, and the fields of a response that tell it.
    pub head: FileHead,
}

/// File that is being sent: in one version, and open if it was looked at, or has several parts. A clone is of the same
/// file.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The file.
    pub file: Arc<File>,
    open: Option<Arc<OpenFile>>,
}

/// Open file, and a permit if the cache keeps it open.
#[derive(Debug)]
struct OpenFile {
    descriptor: OwnedFd,
    permit: Option<OwnedSemaphorePermit>,
}

/// Files of a folder and their contents, as far as there is memory. Shared by all threads.
#[derive(Debug)]
pub struct Cache {
    folder: Folder,
    memory: Memory,
    part_bytes: u64,
    check_interval: Duration,
    /// Permits to keep a file open.
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    files: Clock<Arc<str>, Checked>,
    /// Parts of files, by the file's number and their own.
    parts: Clock<(u64, u64), Arc<Chunk>>,
    next_id: u64,
}

/// File that had its version at a time. It is kept open for parts that are read soon.
#[derive(Debug)]
struct Checked {
    file: Arc<File>,
    at: Instant,
    open: Option<Arc<OpenFile>>,
}

impl Cache {
    /// Makes an empty cache of the files of a folder, in parts of `part_bytes` bytes. It looks at a file again if it has
    /// not done so for `check_interval`, knows at most `files_max` files, and keeps at most `open_max` of them open.
    pub fn new(
        folder: Folder,
        memory: Memory,
        part_bytes: u64,
        check_interval: Duration,
        files_max: usize,
        open_max: usize,
    ) -> Cache {
        // Containers of up to 120 bytes take no memory of the arena, so that their number needs a limit, too.
        let parts_max = files_max.saturating_add(usize::try_from(memory.usage().0 / part_bytes).unwrap_or(0));
        let state = State { files: Clock::new(files_max), parts: Clock::new(parts_max), next_id: 0 };
        let permits = Arc::new(Semaphore::new(open_max));
        Cache { folder, memory, part_bytes, check_interval, permits, state: Mutex::new(state) }
    }

    /// Returns the length of a part, in bytes.
    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// Returns the size of the arena, and the part of it that is in containers, in bytes.
    pub fn usage(&self) -> (u64, u64) {
        self.memory.usage()
    }

    /// Finds the file of a relative name, in the version that it has now, or had a check interval ago. `None` for a
    /// folder.
    ///
    /// # Errors
    /// The kernel's error if the file cannot be opened.
    pub async fn find(&self, name: &str) -> io::Result<Option<Reader>> {
        let now = Instant::now();
        let is_fresh = |known: &&mut Checked| now.duration_since(known.at) < self.check_interval;
        if let Some(known) = self.lock().files.get(name).filter(is_fresh) {
            // What has one part is read now or not at all. All other parts are to be those of the same open file.
            let has_others = known.file.head.bytes() > self.part_bytes;
            let open = if has_others { known.open.clone() } else { None };
            return Ok(Some(Reader { file: known.file.clone(), open }));
        }
        match self.open(name).await? {
            Found::Folder => Ok(None),
            Found::File(descriptor, version) => {
                // A file that is looked at for each request is opened for each.
                let is_kept = !self.check_interval.is_zero();
                let permit = is_kept.then(|| self.permits.clone().try_acquire_owned().ok()).flatten();
                let open = Arc::new(OpenFile { descriptor, permit });
                let file = self.note(name, version, now, &open);
                Ok(Some(Reader { file, open: Some(open) }))
            }
        }
    }

    /// Closes the files that nobody has asked for since they were to be looked at again: who deletes one gets its room on
    /// the disk back.
    pub fn close_old(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        let is_old = |checked: &&mut Checked| now.duration_since(checked.at) >= self.check_interval;
        let old: Vec<_> =
            state.files.values_mut().filter(is_old).filter_map(|checked| checked.open.take()).collect();
        // The kernel closes without the lock.
        drop(state);
        drop(old);
    }

    /// Forgets the version of a file, so that the next request looks at the file.
    pub fn forget(&self, name: &str) {
        self.lock().files.remove(name);
    }

    /// Returns part `index` of a file: from the cache, or read into a container. While all containers are being sent, it
    /// waits for at most `patience`.
    ///
    /// # Errors
    /// - [`ReadError::Changed`] if the file has another version by now, or is gone.
    /// - [`ReadError::NoMemory`] if no container became free in time.
    /// - [`ReadError::Io`] if the kernel cannot read the file.
    pub async fn part(
        &self,
        reader: &Reader,
        index: u64,
        patience: Duration,
        counters: &Counters,
    ) -> Result<Arc<Chunk>, ReadError> {
        let file = &reader.file;
        if let Some(chunk) = self.cached(file, index) {
            counters.hits.add(1);
            return Ok(chunk);
        }
        counters.misses.add(1);
        let offset = index * self.part_bytes;
        let bytes = file.head.version.bytes.saturating_sub(offset).min(self.part_bytes);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let open = self.opened(reader).await?;
        let deadline = tokio::time::Instant::now() + patience;
        let container = self.memory.alloc(bytes, deadline, || self.evict()).await?;
        let container = container.ok_or(ReadError::NoMemory)?;
        let container = fill(&open, container, offset).await?;
        if Version::read(&open.descriptor)? != file.head.version {
            return Err(ReadError::Changed);
        }
        let chunk = self.memory.chunk(container);
        if file.head.is_settled {
            let mut state = self.lock();
            // Another request may have been faster: both have the same bytes.
            let slot = state.parts.insert((file.id, index), chunk.clone(), is_idle);
            if let (0, Some(slot)) = (index, slot) {
                file.first_slot.store(slot, Ordering::Relaxed);
            }
        }
        Ok(chunk)
    }

    fn cached(&self, file: &File, index: u64) -> Option<Arc<Chunk>> {
        let (key, parts) = ((file.id, index), &mut self.lock().parts);
        let found = match index {
            // Written under the lock, so that it is the slot into which the part was put last.
            0 => parts.get_at(file.first_slot.load(Ordering::Relaxed), &key),
            _ => parts.get(&key),
        };
        found.cloned()
    }

    /// Frees the memory of a part that has not been used lately and that is not being sent. Returns false if there is
    /// none.
    fn evict(&self) -> bool {
        let evicted = self.lock().parts.evict(is_idle);
        evicted.is_some()
    }

    /// Returns a reader's file, which is opened if it is not open.
    async fn opened(&self, reader: &Reader) -> Result<Arc<OpenFile>, ReadError> {
        let Reader { file, open } = reader;
        let kept =
            || self.lock().files.get(&*file.name).filter(|known| known.file.id == file.id)?.open.clone();
        if let Some(open) = open.clone().or_else(kept) {
            return Ok(open);
        }
        match self.open(&file.name).await {
            Ok(Found::File(descriptor, version)) if version == file.head.version => {
                Ok(Arc::new(OpenFile { descriptor, permit: None }))
            }
            Ok(_) => Err(ReadError::Changed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ReadError::Changed),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file, on another thread if the kernel has to ask a device.
    async fn open(&self, name: &str) -> io::Result<Found> {
        if let Some(found) = self.folder.open_cached(name)? {
            return Ok(found);
        }
        let (folder, name) = (self.folder.clone(), name.to_owned());
        blocking(move || folder.open_file(&name)).await?
    }

    /// Notes the version of a file, and returns the file: the same one as before if the version is the same.
    fn note(&self, name: &str, version: Version, at: Instant, open: &Arc<OpenFile>) -> Arc<File> {
        let mut state = self.lock();
        let open = open.permit.is_some().then(|| open.clone());
        if let Some(known) = state.files.get(name)
            && known.file.head.version == version
        {
            (known.at, known.open) = (at, open);
            return known.file.clone();
        }
        state.next_id += 1;
        let name: Arc<str> = name.into();
        let head = FileHead::new(&name, version);
        let first_slot = AtomicUsize::new(usize::MAX);
        let file = Arc::new(File { id: state.next_id, name: name.clone(), first_slot, head });
        if file.head.is_settled {
            state.files.insert(name, Checked { file: file.clone(), at, open }, |_| true);
        }
        file
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if only the cache holds a chunk. As the cache's lock is held, nobody else can begin to hold it.
fn is_idle(chunk: &Arc<Chunk>) -> bool {
    Arc::strong_count(chunk) == 1
}

/// Reads from `offset` on until the container is full: what the kernel has in memory at once, the rest on another
/// thread.
async fn fill(file: &Arc<OpenFile>, mut container: Container, offset: u64) -> Result<Container, ReadError> {
    let mut done = 0;
    while done < container.len() {
        let mut rest = [IoSliceMut::new(&mut container[done..])];
        match rustix::io::preadv2(&file.descriptor, &mut rest, offset + done as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => return Err(ReadError::Changed),
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            // Not in memory, or a file system that cannot tell.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => {
                let file = file.clone();
                return blocking(move || fill_blocking(&file.descriptor, container, offset, done)).await?;
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(container)
}

fn fill_blocking(
    file: &OwnedFd,
    mut container: Container,
    offset: u64,
    mut done: usize,
) -> Result<Container, ReadError> {
    while done < container.len() {
        match rustix::io::pread(file, &mut container[done..], offset + done as u64) {
            Ok(0) => return Err(ReadError::Changed),
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(container)
}

/// Runs what may wait for a device on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    // It fails only if the server is ending, or if the work panicked.
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

/// Time for which a request waits for memory while all of it is being sent to others.
pub const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);
