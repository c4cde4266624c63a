//! The waiting operations of a channel as futures of an executor.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_channel::{Client, Error, Listener, Options, Server, ServerOptions, Submission, socket_pair};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(30);

fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.unwrap().block_on(async { tokio::time::timeout(LONG, task).await.expect("a task hangs") })
}

async fn serve(mut server: Server) -> Error {
    loop {
        match server.next_async().await {
            Ok(request) => {
                let sum = request.arguments().iter().sum();
                server.complete(request, 0, sum).unwrap();
            }
            Err(error) => return error,
        }
    }
}

#[test]
fn requests_and_completions_between_tasks() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("channel.sock");
        let listener = Listener::bind(&name).unwrap();
        let server = tokio::spawn(async move {
            let server = listener.accept_async(&ServerOptions::new()).await.unwrap();
            serve(server).await
        });
        let mut client = Client::connect_async(&name, &Options::new().depth(4)).await.unwrap();
        for round in 0..2000u64 {
            let tags: Vec<_> = (0..1 + round % 4)
                .map(|number| {
                    client.submit(Submission::new(1).arguments([round, number, 0, 0, 0, 0])).unwrap()
                })
                .collect();
            for (number, tag) in tags.into_iter().enumerate() {
                let done = client.reap_async().await.unwrap();
                assert_eq!((done.tag, done.value), (tag, round + number as u64));
            }
        }
        drop(client);
        assert!(matches!(server.await.unwrap(), Error::Closed));
    });
}

#[test]
fn a_waiting_task_can_be_given_up_and_hears_of_the_end() {
    run(async {
        let (here, there) = socket_pair().unwrap();
        let server = thread::spawn(move || Server::over(there, &ServerOptions::new()).unwrap());
        let mut client = Client::over(here, &Options::new()).unwrap();
        let mut server = server.join().unwrap();
        assert!(tokio::time::timeout(SHORT, client.reap_async()).await.is_err());
        assert!(tokio::time::timeout(SHORT, server.next_async()).await.is_err());
        let waiting = tokio::spawn(async move { client.reap_async().await.map(drop) });
        tokio::time::sleep(SHORT).await;
        drop(server);
        assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    });
}
