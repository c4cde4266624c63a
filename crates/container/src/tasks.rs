//! The waiting operations of paths and listeners as futures, for any executor (feature `async`).
//!
//! Dropping a future of a [`Path`] before it has completed loses only the arguments that were given to it,
//! and no message. Dropping a future of [`Listener::accept_async`] may close the connection of a peer that
//! was being accepted.

use crate::container::{Container, Message};
use crate::not_shipped::NotShipped;
use crate::path::{Cargo, Listener, Options, Path, not_one_shipped};
use bywash_link::{Error, aside};

impl Listener {
    /// Like [`Listener::accept`], as a future. A helper thread does the handshake and makes the memory of the
    /// path.
    ///
    /// # Errors
    /// Same as [`Listener::accept`], and [`Error::Io`] if the helper thread cannot be started.
    pub async fn accept_async(&self, options: &Options) -> Result<Path, Error> {
        let (socket, options) = (self.0.accept_async(options.greeting_limit).await?, options.clone());
        aside(move || Path::over(socket, &options)).await
    }
}

impl Path {
    /// Like [`Path::connect`], as a future. A helper thread does the work.
    ///
    /// # Errors
    /// Same as [`Path::connect`], and [`Error::Io`] if the helper thread cannot be started.
    pub async fn connect_async(name: impl AsRef<std::path::Path>, options: &Options) -> Result<Path, Error> {
        let (name, options) = (name.as_ref().to_owned(), options.clone());
        aside(move || Path::connect(name, &options)).await
    }

    /// Like [`Path::alloc`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::alloc`].
    pub async fn alloc_async(&self, bytes: usize) -> Result<Container, Error> {
        self.mind(self.shipping.take_async(bytes).await)
    }

    /// Like [`Path::ship`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::ship`].
    pub async fn ship_async(&self, cargo: impl Into<Cargo>) -> Result<(), NotShipped<Box<Cargo>>> {
        let mut places = [Some(cargo.into())];
        let shipped = self.ship_places_async(&mut places).await;
        not_one_shipped(shipped, places)
    }

    /// Like [`Path::ship_all`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::ship_all`].
    pub async fn ship_all_async(&self, cargo: Vec<Cargo>) -> Result<(), NotShipped<Vec<Cargo>>> {
        let mut places: Vec<Option<Cargo>> = cargo.into_iter().map(Some).collect();
        self.ship_places_async(&mut places)
            .await
            .map_err(|error| NotShipped { error, cargo: places.into_iter().flatten().collect() })
    }

    /// Like [`Path::ship_message`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::ship_message`].
    pub async fn ship_message_async(&self, message: Message) -> Result<(), NotShipped<Vec<Cargo>>> {
        self.ship_all_async(message.into_pieces().map(Cargo::Received).collect()).await
    }

    async fn ship_places_async(&self, places: &mut [Option<Cargo>]) -> Result<(), Error> {
        self.check_peer()?;
        self.mind(self.shipping.ship_async(places).await)
    }

    /// Like [`Path::receive`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::receive`].
    pub async fn receive_async(&self) -> Result<Message, Error> {
        self.mind(self.receiving.take_async().await)
    }
}
