// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <doctest/doctest.h>

/// A port of this machine that nothing listens at: the system's choice, as other tests run beside.
inline int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  auto* const address = reinterpret_cast<sockaddr*>(&place);
  REQUIRE(::bind(listener, address, size) == 0);
  REQUIRE(::getsockname(listener, address, &size) == 0);
  ::close(listener);
  return ntohs(place.sin_port);
}
