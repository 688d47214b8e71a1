//! Clients that ask again and again until a test ends them.

use super::{StopAtEnd, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub struct Load<T> {
    stop: StopAtEnd<Arc<AtomicBool>>,
    answers: Arc<Mutex<Vec<T>>>,
    clients: Vec<JoinHandle<()>>,
}

impl<T: Send + 'static> Load<T> {
    /// Starts clients; a client is a function that asks once.
    pub fn start<F: FnMut() -> T + Send + 'static>(
        clients: usize,
        client: impl FnMut(usize) -> F,
    ) -> Load<T> {
        let mut load = Load {
            stop: StopAtEnd(Arc::default()),
            answers: Arc::default(),
            clients: Vec::new(),
        };
        (0..clients).map(client).for_each(|client| load.add(client));
        load
    }

    pub fn add(&mut self, mut client: impl FnMut() -> T + Send + 'static) {
        let (stop, answers) = (Arc::clone(&self.stop.0), Arc::clone(&self.answers));
        self.clients.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let answer = client();
                answers.lock().expect("answers").push(answer);
            }
        }));
    }

    /// The number of answers of a kind.
    pub fn count(&self, is: impl Fn(&T) -> bool) -> usize {
        let answers = self.answers.lock().expect("answers");
        answers.iter().filter(|answer| is(answer)).count()
    }

    pub fn wait_for(&self, more: usize) {
        let wanted = self.count(|_| true) + more;
        wait_until("answers", || self.count(|_| true) >= wanted);
    }

    /// Ends the clients; returns all answers.
    pub fn end(self) -> Vec<T> {
        drop(self.stop);
        for client in self.clients {
            client.join().expect("a client");
        }
        std::mem::take(&mut self.answers.lock().expect("answers"))
    }
}
