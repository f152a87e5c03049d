package mysql

import "testing"

func TestRightsAreReadFromGrants(t *testing.T) {
	for text, want := range map[string][3]bool{ // INSERT on a_b.c, on a_b.d, on x.c
		"GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION":   {true, true, true},
		"GRANT USAGE ON *.* TO `u`@`%`":                              {false, false, false},
		"GRANT SELECT, INSERT, UPDATE ON `a_b`.* TO `u`@`%`":         {true, true, false},
		"GRANT ALL PRIVILEGES ON `a\\_b`.* TO `u`@`%`":               {true, true, false},
		"GRANT SELECT, INSERT ON `a_b`.`c` TO `u`@`localhost`":       {true, false, false},
		"GRANT SELECT ON `a_b`.`c` TO `u`@`localhost`":               {false, false, false},
		"GRANT `role`@`%` TO `u`@`%`":                                {false, false, false},
		"GRANT SELECT, INSERT ON `x`.* TO `u`@`%` IDENTIFIED BY '*'": {false, false, true},
	} {
		var all grants
		if g, ok := parseGrant(text); ok {
			all = append(all, g)
		}
		for i, table := range []string{"`a_b`.`c`", "`a_b`.`d`", "`x`.`c`"} {
			if got := all.has("INSERT", table); got != want[i] {
				t.Errorf("%s: INSERT on %s is %t", text, table, got)
			}
		}
	}
}
