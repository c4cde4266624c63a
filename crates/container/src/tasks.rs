//! What waits, as tasks of any executor (feature `async`). To drop a future that has not ended loses nothing but what it
//! was given.

use crate::container::{Container, Message};
use crate::not_shipped::NotShipped;
use crate::path::{Cargo, Listener, Options, Path, not_one_shipped};
use bywash_link::{Error, aside};

impl Listener {
    /// As [`Listener::accept`], as a task. The memory of the path is made in a thread aside.
    ///
    /// # Errors
    /// Those of [`Listener::accept`].
    pub async fn accept_async(&self, options: &Options) -> Result<Path, Error> {
        let (socket, options) = (self.0.accept_async(options.greeting_limit).await?, options.clone());
        aside(move || Path::over(socket, &options)).await
    }
}

impl Path {
    /// As [`Path::connect`], as a task.
    ///
    /// # Errors
    /// As [`Path::connect`].
    pub async fn connect_async(name: impl AsRef<std::path::Path>, options: &Options) -> Result<Path, Error> {
        let (name, options) = (name.as_ref().to_owned(), options.clone());
        aside(move || Path::connect(name, &options)).await
    }

    /// As [`Path::alloc`], as a task.
    ///
    /// # Errors
    /// As [`Path::alloc`].
    pub async fn alloc_async(&self, bytes: usize) -> Result<Container, Error> {
        self.mind(self.shipping.take_async(bytes).await)
    }

    /// As [`Path::ship`], as a task.
    ///
    /// # Errors
    /// As [`Path::ship`].
    pub async fn ship_async(&self, cargo: impl Into<Cargo>) -> Result<(), NotShipped<Box<Cargo>>> {
        let mut places = [Some(cargo.into())];
        let shipped = self.ship_places_async(&mut places).await;
        not_one_shipped(shipped, places)
    }

    /// As [`Path::ship_all`], as a task.
    ///
    /// # Errors
    /// As [`Path::ship_all`].
    pub async fn ship_all_async(&self, cargo: Vec<Cargo>) -> Result<(), NotShipped<Vec<Cargo>>> {
        let mut places: Vec<Option<Cargo>> = cargo.into_iter().map(Some).collect();
        self.ship_places_async(&mut places)
            .await
            .map_err(|error| NotShipped { error, cargo: places.into_iter().flatten().collect() })
    }

    /// As [`Path::ship_message`], as a task.
    ///
    /// # Errors
    /// As [`Path::ship_message`].
    pub async fn ship_message_async(&self, message: Message) -> Result<(), NotShipped<Vec<Cargo>>> {
        self.ship_all_async(message.into_pieces().map(Cargo::Received).collect()).await
    }

    async fn ship_places_async(&self, places: &mut [Option<Cargo>]) -> Result<(), Error> {
        self.check_peer()?;
        self.mind(self.shipping.ship_async(places).await)
    }

    /// As [`Path::receive`], as a task.
    ///
    /// # Errors
    /// As [`Path::receive`].
    pub async fn receive_async(&self) -> Result<Message, Error> {
        self.mind(self.receiving.take_async().await)
    }
}
