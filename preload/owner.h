#pragma once

#include "preload/process.h"

// Where memory lies: the card of a stream, a pool, an address. A program with several cards allocates on one while
// another one is current.
namespace carve::preload {

/// What stands for a card where there is none of the slice's.
inline constexpr std::uint16_t kInHost = kMaxCards;         // host memory: nothing to charge
inline constexpr std::uint16_t kForeignCard = kMaxCards + 1;  // a card that the slice does not hold
inline constexpr std::uint16_t kAnyCard = kMaxCards + 2;    // wherever it is used: a managed pool's

/// The device that work of this stream runs on; with a default stream the current context's. False: the driver says
/// no (no context, no such stream). Cost: one driver call.
bool device_of_stream(CUstream stream, bool per_thread, CUdevice* device);
/// The index of the card that a pool draws on, or one of the words above. Cost: one look-up once it is known.
std::uint16_t card_of_pool(CUmemoryPool pool);
/// The same for a place as the driver names it (CUmemLocation, CUmemAllocationType).
std::uint16_t card_of_location(int type, int id, int allocation);
/// The card that the memory at an address lies on; null when it is none of the slice's.
Card* card_of_address(CUdeviceptr address);
/// True when the driver does not know the address any more.
bool is_gone(CUdeviceptr address);

}  // namespace carve::preload
