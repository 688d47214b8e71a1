//! The output of preloaders.

use super::preloader::Preloader;
use crate::context::app_log::Outlet;
use crate::context::generation::Generation;
use forkyard_base::indexed::Indexed;
use forkyard_config::sharing;
use forkyard_core::master::event::GenerationId;
use forkyard_host::logs::{Log, Speaker};

pub(crate) fn outlet_of_preloader<'g>(
    log: &'static Log,
    generations: &'g Indexed<GenerationId, Generation>,
    preloader: &Preloader,
) -> Outlet<'g> {
    let own = own(generations, preloader).and_then(|id| generations.get(&id));
    Outlet {
        log,
        file: own.and_then(|it| it.app_log.as_ref()),
        speaker: Speaker {
            pool: name_of_preloader(generations, preloader),
            kind: "preloader",
            pid: preloader.pid,
            stream: "",
            decorate: true,
        },
    }
}

/// Its pool's name in the log.
pub(crate) fn name_of_preloader<'g>(
    generations: &'g Indexed<GenerationId, Generation>,
    preloader: &Preloader,
) -> &'g str {
    if preloader.is_zygote() {
        return sharing::ZYGOTE;
    }
    let own = own(generations, preloader).and_then(|id| generations.get(&id));
    own.map_or("", |it| it.settings.pool.name.as_str())
}

/// The latest generation of a preloader; `None` for a zygote.
pub(crate) fn own(
    generations: &Indexed<GenerationId, Generation>,
    preloader: &Preloader,
) -> Option<GenerationId> {
    let members = (!preloader.is_zygote()).then(|| preloader.members.all())?;
    members.filter(|id| generations.contains_key(id)).last()
}
