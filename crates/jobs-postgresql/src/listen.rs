//! Notices between machines, on a separate connection, because nobody polls the working one.

use crate::server::Server;
use crate::session::{SILENCE, in_time, of_server, runtime};
use forkyard_jobs::store::sql::{Notice, SqlError};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tokio_postgres::AsyncMessage;

/// The pause before it connects again.
const REST: Duration = Duration::from_secs(1);

pub(crate) fn word(notice: &Notice) -> String {
    match notice {
        Notice::News => String::new(),
        Notice::Cancel(id) => format!("cancel {id}"),
    }
}

fn read(word: &str) -> Notice {
    let id = word.strip_prefix("cancel ").and_then(|id| id.parse().ok());
    id.map_or(Notice::News, Notice::Cancel)
}

pub(crate) fn start(
    server: Server,
    own: Arc<AtomicI32>,
    hear: Box<dyn Fn(Notice) + Send>,
) -> std::io::Result<()> {
    let runtime = runtime()?;
    let forever = move || loop {
        if let Err(error) = runtime.block_on(listen(&server, &own, &*hear)) {
            log::debug!("jobs: other machines are not heard: {error}");
        }
        std::thread::sleep(REST);
    };
    std::thread::Builder::new()
        .name("listen".into())
        .spawn(forever)
        .map(|_| ())
}

/// Listens until the connection ends. A query from time to time shows that the network still forwards.
async fn listen(server: &Server, own: &AtomicI32, hear: &(dyn Fn(Notice) + Send)) -> Result<(), SqlError> {
    let (client, mut connection) = server.connect().await?;
    let hears = async {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(notice))) => {
                    if notice.process_id() != own.load(Ordering::Relaxed) {
                        hear(read(notice.payload()));
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(of_server(&error)),
                None => return Ok(()),
            }
        }
    };
    let asks = async {
        in_time(client.batch_execute("LISTEN forkyard_jobs")).await?;
        // Earlier notices were missed.
        hear(Notice::News);
        loop {
            tokio::time::sleep(SILENCE).await;
            in_time(client.batch_execute("")).await?;
        }
    };
    tokio::select! {
        ended = hears => ended,
        ended = asks => ended,
    }
}
