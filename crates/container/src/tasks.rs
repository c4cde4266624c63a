//! The waiting operations of paths and listeners as futures, for any executor (feature `async`).
//!
//! Dropping a future of a [`Path`] before it has completed loses only the arguments that were given to it,
//! and no message. Dropping a future of [`Listener::accept_async`] may close the connection of a peer that
//! was being accepted.

use crate::container::{Container, Message};
use crate::path::{Listener, Options, Path, Shipment, not_one_shipped};
use crate::ship_error::ShipError;
use bywash_link::{Error, spawn_blocking};

impl Listener {
    /// Like [`Listener::accept`], as a future. A helper thread does the handshake and makes the memory of the
    /// path.
    ///
    /// # Errors
    /// Same as [`Listener::accept`], and [`Error::Io`] if the helper thread cannot be started.
    pub async fn accept_async(&self, options: &Options) -> Result<Path, Error> {
        let (socket, options) = (self.0.accept_async(options.handshake_timeout).await?, options.clone());
        spawn_blocking(move || Path::over(socket, &options)).await
    }
}

impl Path {
    /// Like [`Path::connect`], as a future. A helper thread does the work.
    ///
    /// # Errors
    /// Same as [`Path::connect`], and [`Error::Io`] if the helper thread cannot be started.
    pub async fn connect_async(name: impl AsRef<std::path::Path>, options: &Options) -> Result<Path, Error> {
        let (name, options) = (name.as_ref().to_owned(), options.clone());
        spawn_blocking(move || Path::connect(name, &options)).await
    }

    /// Like [`Path::alloc`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::alloc`].
    pub async fn alloc_async(&self, bytes: usize) -> Result<Container, Error> {
        self.note_error(self.shipping.take_async(bytes).await)
    }

    /// Like [`Path::ship`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::ship`].
    pub async fn ship_async(&self, shipment: impl Into<Shipment>) -> Result<(), ShipError<Box<Shipment>>> {
        let mut places = [Some(shipment.into())];
        let shipped = self.ship_places_async(&mut places).await;
        not_one_shipped(shipped, places)
    }

    /// Like [`Path::ship_all`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::ship_all`].
    pub async fn ship_all_async(&self, shipment: Vec<Shipment>) -> Result<(), ShipError<Vec<Shipment>>> {
        let mut places: Vec<Option<Shipment>> = shipment.into_iter().map(Some).collect();
        self.ship_places_async(&mut places)
            .await
            .map_err(|error| ShipError { error, shipment: places.into_iter().flatten().collect() })
    }

    /// Like [`Path::ship_message`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::ship_message`].
    pub async fn ship_message_async(&self, message: Message) -> Result<(), ShipError<Vec<Shipment>>> {
        self.ship_all_async(message.into_pieces().map(Shipment::Received).collect()).await
    }

    async fn ship_places_async(&self, places: &mut [Option<Shipment>]) -> Result<(), Error> {
        self.check_peer()?;
        self.note_error(self.shipping.ship_async(places).await)
    }

    /// Like [`Path::receive`], as a future.
    ///
    /// # Errors
    /// Same as [`Path::receive`].
    pub async fn receive_async(&self) -> Result<Message, Error> {
        self.note_error(self.receiving.take_async().await)
    }
}
