//! A snapshot, read with suspicion: each row was written by the worker it is about.

use super::children::{Children, WorkerProgress};
use super::event::{GenerationId, Row, WorkerId};
use super::leave::Going;
use crate::tick::Tick;
use std::collections::BTreeMap;

/// What a snapshot says about a generation.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Workers that wait for work and were not told to go.
    pub idle: Vec<Idle>,
    /// Workers that are not up yet and were not told to go: each will take work, or say that there is none.
    pub starting: u32,
    /// Workers that are up, have work and were not told to go.
    pub busy: u32,
    /// Those of them that take more work at once.
    pub roomy: u32,
    /// Workers that were told to go as surplus and say that they are idle.
    pub lingering: Vec<WorkerId>,
    /// Requests that may expire, and since when they run; without those whose worker was sent a signal.
    pub running: Vec<TimedRequest>,
    /// Since when workers, told to go or not, have work that may become a running request.
    pub about_to_run: Vec<Tick>,
    /// How many connections wait, if that is known.
    pub queued: Option<u32>,
}

/// A request that may expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimedRequest {
    pub worker: WorkerId,
    pub since: Tick,
    /// The application runs.
    pub executing: bool,
    /// From when on it counts as slow, if it was not found slow before.
    pub unlogged: Option<Tick>,
}

/// A worker that waits for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle {
    pub worker: WorkerId,
    pub since: Tick,
    /// It holds idle kept connections.
    pub keeps: bool,
    /// It has let work wait before; it is not counted upon.
    pub stalled: bool,
}

impl View {
    /// Reads the rows of a generation's own workers; a worker without a row is busy if it is up.
    pub(super) fn read(
        children: &mut Children,
        generation: GenerationId,
        rows: &[Row],
        queued: Option<u32>,
        now: Tick,
    ) -> View {
        let rows: BTreeMap<WorkerId, &Row> = rows.iter().map(|row| (row.worker, row)).collect();
        let mut view = View {
            queued,
            ..View::default()
        };
        for worker in children.of(generation) {
            view.count(children, worker, rows.get(&worker).copied(), now);
        }
        view
    }

    fn count(&mut self, children: &mut Children, id: WorkerId, row: Option<&Row>, now: Tick) {
        let idle = row.is_some_and(|row| row.idle);
        let running = row.is_some_and(|row| row.running && !row.idle);
        let since = row.and_then(|row| children.change(id, |worker| worker.see(idle, row.since, now)));
        let Some(worker) = children.worker(id) else { return };
        let up = worker.progress == WorkerProgress::Up || running;
        match worker.going {
            Going::Kept if !up => self.starting += 1,
            Going::Kept if idle => self.idle.push(Idle {
                worker: id,
                since: since.unwrap_or(now),
                keeps: row.is_some_and(|row| row.kept > 0),
                stalled: worker.stalled.is_some() && worker.stalled == row.map(|row| row.since),
            }),
            Going::Surplus if idle => self.lingering.push(id),
            Going::Kept => {
                self.busy += 1;
                let has_room = row.is_some_and(|row| row.has_room && worker.stalled != Some(row.since));
                self.roomy += u32::from(has_room);
            }
            Going::Surplus | Going::Leaving => {}
            Going::Terminated(_) | Going::Killed(_) => return,
        }
        if running {
            let since = since.unwrap_or(now);
            self.running.push(TimedRequest {
                worker: id,
                since,
                executing: row.is_some_and(|row| row.executing),
                unlogged: worker.unlogged_since(since),
            });
        } else if up && !idle {
            self.about_to_run.push(since.unwrap_or(now));
        }
    }

    /// How many workers can be counted upon to take work at once: idle ones, and those that have room for more.
    pub(super) fn ready(&self) -> u32 {
        let idle = self.idle.iter().filter(|idle| !idle.stalled).count();
        u32::try_from(idle).unwrap_or(u32::MAX).saturating_add(self.roomy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::event::SlotIndex;

    const GENERATION: GenerationId = GenerationId(0);

    fn row(worker: WorkerId, idle: bool, running: bool) -> Row {
        Row {
            worker,
            idle,
            has_room: false,
            since: Tick::ZERO,
            running,
            executing: running,
            kept: 0,
        }
    }

    #[test]
    fn a_worker_with_room_is_ready_and_busy() {
        let mut children = Children::default();
        let ids: Vec<WorkerId> = (0..3)
            .map(|slot| children.add(GENERATION, SlotIndex(slot), 0, Tick::ZERO))
            .collect();
        for id in &ids {
            children.change(*id, |worker| worker.progress = WorkerProgress::Up);
        }
        children.change(ids[2], |worker| worker.going = Going::Leaving);
        let rows = ids.iter().map(|id| Row {
            has_room: *id != ids[1],
            ..row(*id, false, true)
        });
        let rows: Vec<Row> = rows.collect();
        let view = View::read(&mut children, GENERATION, &rows, None, Tick::ZERO);
        assert_eq!((view.ready(), view.busy, view.idle.len()), (1, 2, 0));
    }

    #[test]
    fn each_worker_is_counted_once_whatever_the_rows_say() {
        let mut children = Children::default();
        let ids: Vec<WorkerId> = (0..4)
            .map(|slot| children.add(GENERATION, SlotIndex(slot), 0, Tick::ZERO))
            .collect();
        for id in &ids[..3] {
            children.change(*id, |worker| worker.progress = WorkerProgress::Up);
        }
        children.change(ids[2], |worker| worker.going = Going::Surplus);
        let rows = [
            row(ids[0], true, true),
            row(ids[0], true, false),
            row(ids[1], false, true),
            row(ids[2], true, false),
            row(WorkerId(99), true, false),
        ];
        let view = View::read(&mut children, GENERATION, &rows, None, Tick::ZERO);
        assert_eq!((view.ready(), view.busy, view.starting), (1, 1, 1));
        assert_eq!(view.lingering, [ids[2]]);
        let running = TimedRequest {
            worker: ids[1],
            since: Tick::ZERO,
            executing: true,
            unlogged: Some(Tick::ZERO),
        };
        assert_eq!(view.running, [running]);
        assert_eq!(view.about_to_run, []);
    }
}
