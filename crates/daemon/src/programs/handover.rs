//! The hand-over of programs.

use super::{ProcessSlot, ProgramProcess, Programs, RunningProgram};
use crate::context::Context;
use crate::context::lines::Lines;
use crate::context::processes::Who;
use crate::context::sources::Source;
use forkyard_base::tick::Tick;
use forkyard_core::master::event::{Ended, GenerationId};
use forkyard_core::master::program::Program;
use forkyard_protocol::handover::{document, names};
use forkyard_runtimes::http::Share;
use forkyard_spawn::capture::Capture;
use forkyard_spawn::effects::{Remains, SocketFile};
use forkyard_sys::dir::Mark;
use forkyard_sys::guarded::Guarded;
use forkyard_sys::{Error, clock, process};
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// The unit of start times in /proc (proc(5)): a hundredth of a second.
const CLOCK_TICK_NANOS: u64 = 10_000_000;

impl Programs {
    /// Adopts a generation's program from another master. Returns false if nothing of it is left.
    pub(crate) fn adopt(
        &mut self,
        context: &mut Context,
        left: &document::SavedGeneration,
        descriptors: &mut HashMap<String, OwnedFd>,
    ) -> Result<bool, Error> {
        let id = GenerationId(left.id);
        if !context.pools.has_program(id) {
            return Ok(false);
        }
        let Some(memory) = descriptors.remove(&names::program_table(left.id)) else {
            return Ok(false);
        };
        // Processes that are not our children know from the kernel that their master is gone.
        let is_there = |it: &&document::SavedProgram| {
            process::is_child(it.pid) && process::start_time(it.pid) == Some(it.start_time)
        };
        let there: Vec<&document::SavedProgram> = left.programs.iter().filter(is_there).collect();
        if left.places == 0 {
            return Ok(false);
        }
        let share = Share::adopt(memory, left.places as usize, left.slots as usize)?;
        if there.is_empty() {
            // Its workers find the next program's processes.
            (0..left.places as usize).for_each(|index| share.table().withdraw(index));
            if let Some(generation) = context.pools.generations.get_mut(&id) {
                generation.share = Some(share);
            }
            return Ok(false);
        }
        let in_entries = context.pools.logs_entries(id);
        let mut slots: Vec<ProcessSlot> = (0..left.places).map(|_| ProcessSlot::default()).collect();
        for process in there {
            let index = process.place as usize;
            let [input, output] = names::program(left.id, process.place).map(|end| descriptors.remove(&end));
            let (Some(input), Some(slot)) = (input, slots.get_mut(index)) else {
                continue;
            };
            let output = output.map(Guarded::with_descriptors);
            if let Some(output) = &output {
                let sources = &mut context.services.sources;
                sources.watch(output, Source::ProgramOutput(id, index))?;
            }
            let who = Who::Program(id, index);
            context.processes.by_pid.insert(process.pid, who);
            let sockets = process.sockets.iter().map(adopted_socket).collect();
            let remains = Remains::adopt(process.pid, &process.mark).with_sockets(sockets);
            slot.running = Some(ProgramProcess {
                pid: process.pid,
                input: Some(input),
                output: output.map(|output| Lines::new(output).in_entries(in_entries)),
                remains,
                is_ending: false,
                since: Tick::from_nanos(process.start_time.saturating_mul(CLOCK_TICK_NANOS)),
                words: Capture::default(),
            });
            slot.ups = process.restarts.saturating_add(1);
        }
        let up: Vec<bool> = slots.iter().map(|slot| slot.running.is_some()).collect();
        for (index, _) in up.iter().enumerate().filter(|(_, is_up)| !**is_up) {
            share.table().withdraw(index);
        }
        if let Some(generation) = context.pools.generations.get_mut(&id) {
            generation.share = Some(share.clone());
        }
        let mut actions = Vec::new();
        let record = RunningProgram {
            program: Program::resume(&up, clock::now(), &mut actions),
            share,
            slots,
            last_exit: Ended::Unknown,
            last_error: None,
            failing: false,
        };
        self.running.insert(id, record);
        for action in actions {
            self.perform(context, id, action);
        }
        Ok(true)
    }

    pub(crate) fn programs_left(&self, id: GenerationId) -> Vec<document::SavedProgram> {
        let slots = self.running.get(&id).map(|record| record.slots.as_slice());
        let slots = slots.unwrap_or_default();
        let entry = |(index, running): (usize, &ProgramProcess)| {
            Some(document::SavedProgram {
                place: u32::try_from(index).ok()?,
                pid: running.pid,
                start_time: process::start_time(running.pid)?,
                mark: running.remains.mark(),
                restarts: slots[index].ups.saturating_sub(1),
                sockets: running.remains.sockets().iter().map(left_socket).collect(),
            })
        };
        running(slots).filter_map(entry).collect()
    }

    pub(crate) fn program_ends(&self, id: GenerationId) -> Vec<(String, &OwnedFd)> {
        let slots = self.running.get(&id).map(|record| record.slots.as_slice());
        let mut ends = Vec::new();
        for (index, running) in running(slots.unwrap_or_default()) {
            let [input, output] = names::program(id.0, u32::try_from(index).unwrap_or(u32::MAX));
            ends.extend(running.input.iter().map(|end| (input.clone(), end)));
            ends.extend(running.output.iter().map(|lines| (output.clone(), lines.pipe())));
        }
        ends
    }
}

impl Context {
    /// Removes sockets of an earlier master's processes that do not continue: the kernel has told them
    /// that it is gone.
    pub(crate) fn remove_sockets_of_others(&mut self, left: &document::Document) {
        let by_pid = &self.processes.by_pid;
        let goes_on = |pid: i32| matches!(by_pid.get(&pid), Some(Who::Program(..)));
        let programs = left.generations.iter().flat_map(|it| &it.programs);
        for program in programs.filter(|program| !goes_on(program.pid)) {
            let sockets = program.sockets.iter().map(adopted_socket);
            self.spawner.remove_sockets(sockets.collect());
        }
    }
}

fn left_socket(socket: &SocketFile) -> document::SocketFile {
    let Mark { device, inode, made } = socket.mark;
    document::SocketFile {
        path: socket.path.clone(),
        uid: socket.uid,
        mark: (device, inode, made),
    }
}

fn adopted_socket(socket: &document::SocketFile) -> SocketFile {
    let (device, inode, made) = socket.mark;
    SocketFile {
        path: socket.path.clone(),
        uid: socket.uid,
        mark: Mark { device, inode, made },
    }
}

fn running<'s>(slots: &'s [ProcessSlot]) -> impl Iterator<Item = (usize, &'s ProgramProcess)> {
    let running = |(index, slot): (usize, &'s ProcessSlot)| Some((index, slot.running.as_ref()?));
    let all = slots.iter().enumerate().filter_map(running);
    all.filter(|(_, running)| running.input.is_some())
}
