//! Serves a hundred paths with one thread: each connection and each client is a task of tokio.
//!
//!     cargo run --release -p bywash-container --features async --example tokio [messages]

use bywash_container::{Error, Listener, Options, Path};
use std::time::Instant;

const CLIENTS: usize = 100;

/// Replies to each message with its bytes in reverse order.
async fn serve(path: Path) -> Result<(), Error> {
    loop {
        let message = match path.receive_async().await {
            Err(Error::Closed) => return Ok(()),
            other => other?,
        };
        // Copied once before use, since a client is not trusted.
        let mut bytes = message.to_vec()?;
        bytes.reverse();
        let mut answer = path.alloc_async(bytes.len()).await?;
        answer.copy_from_slice(&bytes);
        path.ship_async(answer).await.map_err(|refused| refused.error)?;
    }
}

async fn ask(name: std::path::PathBuf, options: Options, messages: u64) -> Result<(), Error> {
    let path = Path::connect_async(name, &options).await?;
    for number in 0..messages {
        let mut question = path.alloc_async(1000).await?;
        question.fill(0);
        question[..8].copy_from_slice(&number.to_le_bytes());
        path.ship_async(question).await.map_err(|refused| refused.error)?;
        let answer = path.receive_async().await?.to_vec()?;
        assert_eq!(answer[992..], number.to_be_bytes(), "another answer than was expected");
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let messages = std::env::args().nth(1).map_or(Ok(1000), |number| number.parse())?;
    let folder = tempfile::tempdir()?;
    let name = folder.path().join("path.sock");
    let listener = Listener::bind(&name)?;
    let options = Options::new().arena_bytes(64 << 10);
    let start = Instant::now();
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| tokio::spawn(ask(name.clone(), options.clone(), messages))).collect();
    for _ in 0..CLIENTS {
        tokio::spawn(serve(listener.accept_async(&options).await?));
    }
    for client in clients {
        client.await??;
    }
    let total = CLIENTS as u64 * messages;
    println!(
        "{total} answers to {CLIENTS} clients, {:.0} a second",
        total as f64 / start.elapsed().as_secs_f64()
    );
    Ok(())
}
