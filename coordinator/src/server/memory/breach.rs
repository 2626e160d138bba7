//! Impossible messages about memory.

use baton_contract::messages::ExtentId;

/// The reason why a tenant's message about memory is impossible. The tenant loses its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum MemoryBreach {
    /// It asked for memory that is no multiple of a granule.
    #[error("{}", baton_messages::asked_for_part_of_a_granule(bytes))]
    AskedForPartOfAGranule { bytes: u64 },
    /// It asked for memory at addresses that it has in use.
    #[error("{}", baton_messages::asked_where_no_room_is(bytes, format_args!("{at:#x}")))]
    AskedWhereNoRoomIs { at: u64, bytes: u64 },
    /// It asked for memory while it is off the GPU.
    #[error("{}", baton_messages::asked_without_the_baton())]
    AskedWithoutTheBaton,
    /// It asked for the frame of an extent that it has not mapped.
    #[error("{}", baton_messages::asked_for_unmapped_frame(.0.0))]
    AskedForUnmappedFrame(ExtentId),
    /// It freed an extent that it does not have.
    #[error("{}", baton_messages::freed_unmapped_extent(.0.0))]
    FreedUnmappedExtent(ExtentId),
    /// It freed a part of extents that it does not have.
    #[error("{}", baton_messages::freed_unmapped_bytes(bytes, format_args!("{at:#x}")))]
    FreedUnmappedBytes { at: u64, bytes: u64 },
    /// It uses a range again that was not spare.
    #[error("{}", baton_messages::used_what_was_not_spare(bytes, format_args!("{at:#x}")))]
    UsedWhatWasNotSpare { at: u64, bytes: u64 },
    /// It wants a range in one piece that is no row of its own extents.
    #[error("{}", baton_messages::wants_foreign_bytes_in_one_piece(bytes, format_args!("{at:#x}")))]
    WantsForeignBytesInOnePiece { at: u64, bytes: u64 },
    /// It gave back more than it has leased.
    #[error("{}", baton_messages::gave_back_too_much(bytes))]
    GaveBackTooMuch { bytes: u64 },
    /// It reports on a command that it was not given.
    #[error("{}", baton_messages::reported_unknown_command(batch))]
    ReportedUnknownCommand { batch: u32 },
    /// Its driver refuses to map or unmap.
    #[error("{}", baton_messages::cannot_carry_out())]
    CannotCarryOut,
}
