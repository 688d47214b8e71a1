//! Changes to a hand-over document since it was last written in full. Rewriting the whole document for each worker
//! would be too slow with thousands of pools.

use super::document::{Document, SavedGeneration, SavedPool, Stopping};
use crate::last_reload::LastReload;
use crate::last_upgrade::LastUpgrade;
use crate::past_event::PastEvent;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Changed and removed parts of a document.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// As in [`Document`]; these five fields are always included.
    pub stopping: Option<Stopping>,
    pub last_pool: u32,
    pub last_generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<LastReload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_upgrade: Option<LastUpgrade>,
    /// Events to insert or replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<PastEvent>,
    /// Numbers of forgotten events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events_gone: Vec<u64>,
    /// Pools to insert or replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<SavedPool>,
    /// Generations to insert or replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generations: Vec<SavedGeneration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools_gone: Vec<u32>,
    /// Numbers of finished generations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generations_gone: Vec<u32>,
}

impl Changes {
    /// Encodes the changes, without a frame.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain values to memory can't fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes changes from unframed bodies.
    ///
    /// # Errors
    /// A body is invalid.
    pub fn decode_all(bodies: &[&[u8]]) -> Result<Vec<Changes>, serde_json::Error> {
        bodies.iter().map(|body| serde_json::from_slice(body)).collect()
    }
}

impl Document {
    /// Applies changes in order. The result lists pools, generations and events by number.
    #[must_use]
    pub fn with(self, changes: Vec<Changes>) -> Document {
        let Some(last) = changes.last() else { return self };
        let (stopping, last_pool, last_generation) = (last.stopping, last.last_pool, last.last_generation);
        let (last_reload, last_upgrade) = (last.last_reload.clone(), last.last_upgrade.clone());
        let numbered = self.events.into_iter().map(|event| (event.number, event));
        let mut events: BTreeMap<u64, PastEvent> = numbered.collect();
        let numbered = self.pools.into_iter().map(|pool| (pool.id, pool));
        let mut pools: BTreeMap<u32, SavedPool> = numbered.collect();
        let numbered = self.generations.into_iter().map(|it| (it.id, it));
        let mut generations: BTreeMap<u32, SavedGeneration> = numbered.collect();
        for change in changes {
            pools.extend(change.pools.into_iter().map(|pool| (pool.id, pool)));
            generations.extend(change.generations.into_iter().map(|it| (it.id, it)));
            events.extend(change.events.into_iter().map(|event| (event.number, event)));
            for number in change.events_gone {
                events.remove(&number);
            }
            for id in change.pools_gone {
                pools.remove(&id);
            }
            for id in change.generations_gone {
                generations.remove(&id);
            }
        }
        Document {
            stopping,
            last_pool,
            last_generation,
            last_reload,
            last_upgrade,
            events: events.into_values().collect(),
            pools: pools.into_values().collect(),
            generations: generations.into_values().collect(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;
    use crate::address::Address;
    use crate::counters::PoolCounters;
    use crate::past_event::{EventKind, Happening};

    fn pool(id: u32, serving: u32) -> SavedPool {
        SavedPool {
            id,
            name: format!("p{id}"),
            address: Address::Unix("/run/p.sock".into()),
            file: None,
            http: None,
            serving: Some(serving),
            has_queue: false,
            has_lanes: false,
            has_turns: false,
            counters: PoolCounters::default(),
            release: None,
            sites: BTreeMap::new(),
            last_deployment: None,
            had: None,
        }
    }

    fn generation(id: u32, rests: bool) -> SavedGeneration {
        SavedGeneration {
            id,
            pool: 1,
            name: "p1".to_owned(),
            started: 5,
            slots: 2,
            rests,
            workers: Vec::new(),
            programs: Vec::new(),
            release: None,
            turn: None,
            places: 0,
        }
    }

    fn event(number: u64, count: u64) -> PastEvent {
        PastEvent {
            number,
            time_ms: 5,
            last_ms: None,
            count,
            what: Happening::of_daemon(EventKind::Reload, "x"),
        }
    }

    fn whole() -> Document {
        Document {
            version: super::super::document::VERSION,
            program: "0.1.0".to_owned(),
            master: 77,
            stopping: None,
            descriptor_limit: None,
            last_pool: 2,
            last_generation: 2,
            last_reload: None,
            crashes: Vec::new(),
            autopilots: Vec::new(),
            last_upgrade: None,
            started: 3,
            events: vec![event(1, 1), event(2, 1)],
            pools: vec![pool(1, 1), pool(2, 2)],
            generations: vec![generation(1, false), generation(2, false)],
        }
    }

    #[test]
    fn each_part_is_as_it_was_said_last() {
        let first = Changes {
            last_pool: 3,
            last_generation: 4,
            last_reload: None,
            pools: vec![pool(3, 3), pool(1, 4)],
            generations: vec![generation(4, false)],
            pools_gone: vec![2],
            generations_gone: vec![2],
            events: vec![event(2, 4), event(3, 1)],
            events_gone: vec![1],
            ..Changes::default()
        };
        let second = Changes {
            stopping: Some(Stopping::Finish),
            last_pool: 3,
            last_generation: 4,
            last_reload: None,
            generations: vec![generation(1, true)],
            ..Changes::default()
        };
        let bytes: Vec<u8> = [whole().encode(), first.encode(), second.encode()]
            .iter()
            .zip(10..)
            .flat_map(|(body, sequence)| frame::encode(sequence, body))
            .collect();
        let document = Document::newest([&bytes, b""]).unwrap();
        assert_eq!(document.pools, [pool(1, 4), pool(3, 3)]);
        assert_eq!(document.generations, [generation(1, true), generation(4, false)]);
        assert_eq!(
            (document.stopping, document.last_pool, document.last_generation),
            (Some(Stopping::Finish), 3, 4)
        );
        assert_eq!((document.master, document.started), (77, 3));
        assert_eq!(document.events, [event(2, 4), event(3, 1)]);
        let document = Document::newest([&bytes[..bytes.len() - 1], b""]).unwrap();
        assert_eq!(document.generations, [generation(1, false), generation(4, false)]);
        assert_eq!(document.stopping, None);
    }

    #[test]
    fn a_newer_whole_one_takes_the_place_of_an_older_one_and_its_changes() {
        let change = Changes {
            last_generation: 9,
            last_reload: None,
            ..Changes::default()
        };
        let mut older = frame::encode(5, &whole().encode());
        older.extend(frame::encode(8, &change.encode()));
        let newer = frame::encode(6, &whole().encode());
        let number = |copies| Document::newest(copies).unwrap().last_generation;
        assert_eq!(number([&older, &newer]), 2);
        assert_eq!(number([&newer, &older]), 2);
        assert_eq!(number([&older, &newer[..newer.len() - 1]]), 9);
        let remnant = [newer.as_slice(), &older].concat();
        assert_eq!(number([&remnant, b""]), 2, "what is older belongs to another");
    }

    #[test]
    fn without_changes_it_is_as_it_was_written() {
        let mut document = whole();
        document.pools.reverse();
        assert_eq!(document.clone().with(Vec::new()), document);
    }

    #[test]
    fn changes_of_another_shape_are_refused() {
        let mut bytes = frame::encode(5, &whole().encode());
        bytes.extend(frame::encode(6, b"{\"last_pool\":1,\"new\":2}"));
        assert!(Document::newest([&bytes, b""]).is_err());
    }
}
