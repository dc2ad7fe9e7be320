#pragma once

#include "preload/process.h"

// Finds the card of a stream, a pool or an address. A program with several cards may allocate on a card that is not
// the current one.
namespace carve::preload {

/// Values in place of a card index, for memory that is on no known card of the slice.
inline constexpr std::uint16_t kInHost = kMaxCards;         // host memory: nothing to charge
inline constexpr std::uint16_t kForeignCard = kMaxCards + 1;  // a card that is not in the slice
inline constexpr std::uint16_t kAnyCard = kMaxCards + 2;    // the card that uses the memory: a managed pool

/// The device on which work of this stream runs; for a default stream, the device of the current context. False: the
/// driver returned an error (no context, no such stream). Cost: one driver call.
bool device_of_stream(CUstream stream, bool per_thread, CUdevice* device);
/// The index of the card from which a pool takes memory, or one of the values above. Cost: one look-up once the pool is
/// known.
std::uint16_t card_of_pool(CUmemoryPool pool);
/// The same for a location in the driver's terms (CUmemLocation, CUmemAllocationType).
std::uint16_t card_of_location(int type, int id, int allocation);
/// The card that has the memory at an address; null when it is not a card of the slice.
Card* card_of_address(CUdeviceptr address);
/// True when the driver no longer knows the address.
bool is_gone(CUdeviceptr address);

}  // namespace carve::preload
